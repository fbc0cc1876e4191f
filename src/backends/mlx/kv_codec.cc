#include "backends/mlx/kv_codec.h"

namespace mantou::on_mlx {

Planes KvCodec::encode(const array& keys, const array& values) const {
  if (plain()) return {keys, values};
  Planes planes = mx::quantize(keys, group, bits);
  for (array& plane : mx::quantize(values, group, bits)) planes.push_back(std::move(plane));
  return planes;
}

}  // namespace mantou::on_mlx
