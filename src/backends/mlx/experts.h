// A mixture of experts as mlx-lm computes it (models/switch_layers.py and the routers of the
// families). Pure functions.
#pragma once

#include "backends/mlx/mlx_arrays.h"

namespace mantou::on_mlx {

// activation(gate) · up; `up` alone is activated when there is no gate.
array activate(Activation activation, const std::optional<array>& gate, const array& up);

array mlp(const array& x, const Mlp& mlp);

// x [B, L, hidden] through the experts chosen by what the router makes of `routed`, and the shared
// one.
array mixture(const array& x, const array& routed, const MoeSpec& spec);

}  // namespace mantou::on_mlx
