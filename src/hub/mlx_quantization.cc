#include "hub/mlx_quantization.h"

#include <algorithm>

#include "base/error.h"
#include "hub/config_reader.h"
#include "hub/directory_config.h"
#include "hub/json_file.h"

namespace mantou::hub {
namespace {

using nlohmann::json;
using Spec = MlxQuantization::Spec;

constexpr int64_t kWordBits = 32;

// MLX's modes; the first of their bits and groups is what it takes when none are given.
struct Mode {
  std::string_view name;
  QuantMode mode;
  std::vector<int64_t> bits, groups;
};
const std::vector<Mode>& modes() {
  static const std::vector<Mode> kModes = {
      {"affine", QuantMode::kAffine, {4, 1, 2, 3, 5, 6, 8}, {64, 32, 128}},
      {"mxfp4", QuantMode::kMxFp4, {4}, {32}},
      {"nvfp4", QuantMode::kNvFp4, {4}, {16}},
      {"mxfp8", QuantMode::kMxFp8, {8}, {32}},
  };
  return kModes;
}

// "1, 2 or 3"
std::string listed(std::vector<int64_t> values) {
  std::sort(values.begin(), values.end());
  std::string out;
  for (size_t i = 0; i < values.size(); ++i)
    out += fmt::format("{}{}", i == 0 ? "" : i + 1 == values.size() ? " or " : ", ", values[i]);
  return out;
}

std::optional<int64_t> read_int(const ConfigReader& reader, const char* key, int64_t max) {
  if (!reader.has(key)) return std::nullopt;
  return reader.get_int(key, 1, max);
}

Spec read_spec(const ConfigReader& reader) {
  Spec spec;
  spec.bits = read_int(reader, "bits", 32);
  spec.group = read_int(reader, "group_size", 1 << 20);
  spec.mode = reader.get_string("mode", "");
  return spec;
}

bool contains(const std::vector<int64_t>& values, int64_t value) {
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
  const std::string method = section->get_string("quant_method", "mlx");
  if (method == "mxfp4") {  // gpt-oss as published, where only the experts are
    out.default_ = Spec{{}, {}, "mxfp4"};
    return out;
  }
  if (method != "mlx")
    fail_param(ErrorCode::kUnsupported, key,
               "{}: weights quantized by \"{}\" are not supported; take the original or an MLX or "
               "GGUF conversion",
               out.origin_, printable(method));
  out.default_ = read_spec(*section);
  if (out.default_->mode.empty()) out.default_->mode = modes().front().name;
  for (const auto& [name, value] : config[key].items()) {
    Spec spec;
    if (value.is_object())
      spec = read_spec(*section->get_object(name));
    else if (value.is_boolean())
      spec.quantized = value.get<bool>();
    else
      continue;
    out.overrides_[logical_name(name)] = spec;
  }
  return out;
}

MlxQuantization::Resolved MlxQuantization::resolve(std::string_view module, bool has_biases) const {
  if (!default_)
    fail_param(ErrorCode::kCorruptData, "quantization",
               "{}: {} has scales, but there is no \"quantization\"", origin_, printable(module));
  const auto found = overrides_.find(std::string(module));
  const Spec& spec = found == overrides_.end() ? *default_ : found->second;
  if (!spec.quantized)
    fail_param(ErrorCode::kCorruptData, "quantization",
               "{}: quantization says that {} is not quantized, but it has scales", origin_,
               printable(module));
  // An exception without a mode is affine in MLX; files that inherit the mode have no biases.
  std::string name = spec.mode;
  if (name.empty()) name = has_biases ? "affine" : default_->mode;
  const auto mode = std::find_if(modes().begin(), modes().end(),
                                 [&](const Mode& known) { return known.name == name; });
  if (mode == modes().end())
    fail_param(ErrorCode::kUnsupported, "quantization",
               "{}: {} is quantized in mode \"{}\"; affine, mxfp4, nvfp4 and mxfp8 are supported",
               origin_, printable(module), printable(name));
  const Spec fallback = default_->mode == name ? *default_ : Spec{};
  const int64_t bits = spec.bits.value_or(fallback.bits.value_or(mode->bits.front()));
  const int64_t group = spec.group.value_or(fallback.group.value_or(mode->groups.front()));
  if (!contains(mode->bits, bits) || !contains(mode->groups, group))
    fail_param(
        ErrorCode::kUnsupported, "quantization",
        "{}: {} is quantized to {} bits in groups of {}; mode {} has {} bits in groups of {}",
        origin_, printable(module), bits, group, name, listed(mode->bits), listed(mode->groups));
  return {mode->mode, bits, group};
}

RawWeight MlxQuantization::weight(std::string_view module, const RawTensor& packed,
                                  const RawTensor& scales, const RawTensor* biases) const {
  const Resolved spec = resolve(module, biases != nullptr);
  const auto check = [&](bool condition, std::string_view what) {
    if (!condition)
      fail_param(ErrorCode::kCorruptData, std::string(module), "{}: {} ({} bits, groups of {}): {}",
                 origin_, printable(module), spec.bits, spec.group, what);
  };
  check(packed.dtype == DType::kU32 && packed.shape.size() >= 2, "the codes are no u32 matrix");
  if (spec.mode == QuantMode::kAffine) {
    check(biases != nullptr, "there are scales but no biases");
    check(
        scales.dtype == DType::kF32 || scales.dtype == DType::kF16 || scales.dtype == DType::kBF16,
        "scales must be f32, f16 or bf16");
    check(biases->dtype == scales.dtype && biases->shape == scales.shape,
          "scales and biases differ in type or shape");
  } else {
    check(biases == nullptr, "there are biases, which this mode does not have");
    check(scales.dtype == DType::kU8, "scales must be u8");
  }
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
  if (biases != nullptr) weight.biases = *biases;
  weight.mode = spec.mode;
  weight.bits = int(spec.bits);
  weight.group = int(spec.group);
  weight.cols = cols;
  weight.rows = packed.elements() / packed.shape.back();
  return weight;
}

}  // namespace mantou::hub
