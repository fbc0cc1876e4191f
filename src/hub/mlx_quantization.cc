#include "hub/mlx_quantization.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "hub/config_reader.h"
#include "hub/directory_config.h"
#include "hub/json_file.h"

namespace mantou::hub {
namespace {

using nlohmann::json;
using Spec = MlxQuantization::Spec;

constexpr std::array<int64_t, 7> kBits = {1, 2, 3, 4, 5, 6, 8};
constexpr std::array<int64_t, 3> kGroups = {32, 64, 128};
constexpr int64_t kWordBits = 32;

// Fields that are absent or null keep the value they have in `base`.
Spec read_spec(const ConfigReader& reader, Spec base) {
  base.bits = reader.get_int("bits", 1, 32, base.bits);
  base.group = reader.get_int("group_size", 1, 1 << 20, base.group);
  base.mode = reader.get_string("mode", base.mode);
  return base;
}

template <size_t N>
bool contains(const std::array<int64_t, N>& values, int64_t value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

}  // namespace

MlxQuantization MlxQuantization::parse(const json& config, std::string origin) {
  MlxQuantization out;
  out.origin_ = std::move(origin);
  const ConfigReader reader(config, out.origin_);
  const char* key = reader.has("quantization") ? "quantization" : "quantization_config";
  const auto section = reader.get_object(key);
  if (!section) return out;
  if (section->has("quant_method") && section->get_string("quant_method") != "mlx")
    fail_param(ErrorCode::kUnsupported, key,
               "{}: weights quantized by \"{}\" are not supported; take the original or an MLX or "
               "GGUF conversion",
               out.origin_, printable(section->get_string("quant_method")));
  out.default_ = read_spec(*section, Spec{});
  for (const auto& [name, value] : config[key].items()) {
    Spec spec = *out.default_;
    if (value.is_object())
      spec = read_spec(*section->get_object(name), spec);
    else if (value.is_boolean())
      spec.quantized = value.get<bool>();
    else
      continue;
    out.overrides_[logical_name(name)] = spec;
  }
  return out;
}

Spec MlxQuantization::supported_spec(std::string_view module) const {
  if (!default_)
    fail_param(ErrorCode::kCorruptData, "quantization",
               "{}: {} has scales, but there is no \"quantization\"", origin_, printable(module));
  const auto found = overrides_.find(std::string(module));
  const Spec& spec = found == overrides_.end() ? *default_ : found->second;
  if (!spec.quantized)
    fail_param(ErrorCode::kCorruptData, "quantization",
               "{}: quantization says that {} is not quantized, but it has scales", origin_,
               printable(module));
  if (spec.mode != "affine")
    fail_param(ErrorCode::kUnsupported, "quantization",
               "{}: {} is quantized in mode \"{}\"; \"affine\" is supported", origin_,
               printable(module), printable(spec.mode));
  if (!contains(kBits, spec.bits) || !contains(kGroups, spec.group))
    fail_param(ErrorCode::kUnsupported, "quantization",
               "{}: {} is quantized to {} bits in groups of {}; 1 to 6 and 8 bits in groups of 32, "
               "64 and 128 are supported",
               origin_, printable(module), spec.bits, spec.group);
  return spec;
}

RawWeight MlxQuantization::affine_weight(std::string_view module, const RawTensor& packed,
                                         const RawTensor& scales, const RawTensor* biases) const {
  const Spec spec = supported_spec(module);
  const auto check = [&](bool condition, std::string_view what) {
    if (!condition)
      fail_param(ErrorCode::kCorruptData, std::string(module), "{}: {} ({} bits, groups of {}): {}",
                 origin_, printable(module), spec.bits, spec.group, what);
  };
  check(biases != nullptr, "there are scales but no biases");
  check(packed.dtype == DType::kU32 && packed.shape.size() >= 2, "the codes are no u32 matrix");
  check(scales.dtype == DType::kF32 || scales.dtype == DType::kF16 || scales.dtype == DType::kBF16,
        "scales must be f32, f16 or bf16");
  check(biases->dtype == scales.dtype && biases->shape == scales.shape,
        "scales and biases differ in type or shape");
  check(scales.shape.size() == packed.shape.size() &&
            std::equal(scales.shape.begin(), scales.shape.end() - 1, packed.shape.begin()),
        "codes and scales differ in rows");
  const int64_t cols = scales.shape.back() * spec.group;
  check(packed.shape.back() * kWordBits == cols * spec.bits,
        fmt::format("rows of {} words do not match {} scales", packed.shape.back(),
                    scales.shape.back()));
  RawWeight weight;
  weight.data = packed;
  weight.scales = scales;
  weight.biases = *biases;
  weight.bits = int(spec.bits);
  weight.group = int(spec.group);
  weight.cols = cols;
  weight.rows = packed.elements() / packed.shape.back();
  return weight;
}

}  // namespace mantou::hub
