#include "cli/inspection_backend.h"

#include "base/error.h"
#include "tensor/own_kv_type.h"

namespace mantou::cli {
namespace {

class InspectionBackend final : public Backend {
 public:
  explicit InspectionBackend(bool own_kv_type) : has_own_(own_kv_type) {}

  std::string_view name() const override { return "inspection"; }
  std::string_view numerics_id() const override { return "none"; }

  std::optional<KvType> own_kv_type() const override {
    return has_own_ ? own_type_.type() : std::nullopt;
  }

  Weight pack(const RawWeight& raw, WeightUse use) override {
    own_type_.see(raw, use);
    return {raw.rows, raw.cols, std::make_shared<WeightStorage>()};
  }

  Weight pack_experts(std::span<const RawWeight> experts) override {
    return pack(experts[0], WeightUse::kMatrix);
  }

  std::unique_ptr<LayerState> make_state(const StateSpec&) override { refuse(); }
  void begin_step(const StepLayout&) override { refuse(); }
  void end_step() override { refuse(); }
  Tensor embed(const Weight&, std::span<const int32_t>, float) override { refuse(); }
  std::vector<Tensor> project(const Tensor&, const Norm*, std::span<const Linear* const>) override {
    refuse();
  }
  Tensor heads(Tensor, int, const Norm*, const Rope*) override { refuse(); }
  Tensor attend(LayerState&, const Tensor&, const Tensor&, const Tensor&,
                const AttentionSpec&) override {
    refuse();
  }
  Tensor add_output(const Tensor&, const Linear&, const Join&, const Tensor&) override { refuse(); }
  Tensor mlp(const Tensor&, const MlpSpec&, const Tensor&) override { refuse(); }
  Tensor moe(const Tensor&, const MoeSpec&, const Tensor&) override { refuse(); }
  Tensor add(const Tensor&, const Tensor&) override { refuse(); }
  Tensor multiply(const Tensor&, const Weight&) override { refuse(); }
  Tensor join(const Tensor&, const Join&, const Tensor&) override { refuse(); }
  Tensor layer_inputs(const Tensor&, std::span<const int32_t>, const LayerInputs&) override {
    refuse();
  }
  Tensor add_layer_input(const Tensor&, const LayerInputSpec&, const Tensor&, int) override {
    refuse();
  }
  std::vector<Score> head(const Tensor&, const Head&, std::span<const HeadRequest>) override {
    refuse();
  }

 private:
  [[noreturn]] static void refuse() {
    fail(ErrorCode::kInternal, "a model that was loaded for inspection cannot run");
  }

  const bool has_own_;
  OwnKvType own_type_;
};

}  // namespace

std::unique_ptr<Backend> make_inspection_backend(bool own_kv_type) {
  return std::make_unique<InspectionBackend>(own_kv_type);
}

}  // namespace mantou::cli
