#include "runtime/kv_scheme.h"

#include "base/error.h"

namespace mantou::runtime {
namespace {

void require_groups(const StateSpec& spec, size_t layer, const char* knob) {
  if (spec.head_dim % spec.quant.group == 0) return;
  std::vector<int> fitting;
  for (const int group : {32, 64, 128})
    if (spec.head_dim % group == 0) fitting.push_back(group);
  const std::string advice = fitting.empty()
                                 ? "they cannot be quantized"
                                 : fmt::format("{} can be {}", knob, fmt::join(fitting, " or "));
  fail_param(ErrorCode::kUnsupported, "kv_group_size",
             "layer {}: heads of {} dimensions have no groups of {} for a quantized KV cache; {}",
             layer, spec.head_dim, spec.quant.group, advice);
}

}  // namespace

std::string name_of(const KvScheme& scheme) {
  if (scheme.kind == KvScheme::Kind::kOff) return "off";
  std::string name = "config";
  if (scheme.kind == KvScheme::Kind::kUniform) {
    name = fmt::format("kv{}", scheme.bits);
    if (scheme.group != 64) name += fmt::format("-{}", scheme.group);
  }
  if (scheme.start > 0) name += fmt::format("-{}", scheme.start);
  return name;
}

std::vector<StateSpec> with_scheme(std::vector<StateSpec> specs, const KvScheme& scheme,
                                   const std::optional<std::vector<hub::KvConfigEntry>>& config) {
  if (scheme.kind == KvScheme::Kind::kUniform)
    for (StateSpec& spec : specs) spec.quant = {scheme.bits, scheme.group, scheme.start};
  if (scheme.kind == KvScheme::Kind::kConfig) {
    if (!config)
      fail_param(ErrorCode::kNotFound, "kv_quant",
                 "the model has no kv_config.json in its directory, which --exact=mixed and "
                 "--kv-quant config need");
    for (const hub::KvConfigEntry& entry : *config)
      specs.at(size_t(entry.layer)).quant = {entry.bits, entry.group, scheme.start};
  }
  const bool by_file = scheme.kind == KvScheme::Kind::kConfig;
  for (size_t i = 0; i < specs.size(); i++)
    if (specs[i].quant.bits > 0)
      require_groups(specs[i], i, by_file ? "group_size in kv_config.json" : "--kv-group-size");
  return specs;
}

std::vector<StateSpec> with_scheme(std::vector<StateSpec> specs, const KvScheme& scheme,
                                   const std::filesystem::path& path) {
  std::optional<std::vector<hub::KvConfigEntry>> config;
  if (scheme.kind == KvScheme::Kind::kConfig) config = hub::read_kv_config(path, int(specs.size()));
  return with_scheme(std::move(specs), scheme, config);
}

}  // namespace mantou::runtime
