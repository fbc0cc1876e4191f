#include "cli/cache_options.h"

#include "base/error.h"

namespace mantou::cli {
namespace {

KvType plain_type(const Backend& backend, const ModelOptions& options) {
  if (backend.own_kv_type() && options.kv_type != CacheType::kAuto)
    fail_param(ErrorCode::kUnsupported, "kv_type",
               "--kv-type is for the cpu backend: mlx keeps keys and values in the model's own "
               "type; leave it out, or quantize them with --kv-quant");
  if (backend.own_kv_type()) return *backend.own_kv_type();
  switch (options.kv_type) {
    case CacheType::kBF16:
      return KvType::kBF16;
    case CacheType::kF32:
      return KvType::kF32;
    case CacheType::kAuto:
    case CacheType::kF16:
      break;
  }
  return KvType::kF16;
}

}  // namespace

runtime::KvScheme kv_scheme(const ModelOptions& options) {
  using Kind = runtime::KvScheme::Kind;
  runtime::KvScheme scheme;
  scheme.group = options.kv_group_size;
  scheme.start = options.quantized_kv_start;
  if (scheme.group != 32 && scheme.group != 64 && scheme.group != 128)
    fail_param(ErrorCode::kInvalidArgument, "kv_group_size",
               "--kv-group-size is {}, must be 32, 64 or 128", scheme.group);
  const bool config = options.kv_quant == CacheQuant::kConfig || options.exact == Exact::kMixed;
  if (options.exact == Exact::kMixed && options.kv_quant != CacheQuant::kOff &&
      options.kv_quant != CacheQuant::kConfig)
    fail_param(ErrorCode::kInvalidArgument, "kv_quant",
               "--exact=mixed takes the KV cache of kv_config.json; leave --kv-quant out");
  if (config)
    scheme.kind = Kind::kConfig;
  else if (options.kv_quant != CacheQuant::kOff)
    scheme.kind = Kind::kUniform;
  scheme.bits = options.kv_quant == CacheQuant::k4 ? 4 : 8;
  return scheme;
}

std::vector<StateSpec> state_specs(const models::Model& model, const Backend& backend,
                                   const ModelOptions& options, const std::filesystem::path& path) {
  const KvType type = plain_type(backend, options);
  std::vector<StateSpec> specs = runtime::with_scheme(
      options.exact == Exact::kNo ? model.state_specs(type) : model.mlx_lm_state_specs(type),
      kv_scheme(options), path);
  for (size_t i = 0; options.exact == Exact::kYes && i < specs.size(); i++)
    if (specs[i].quant.bits > 0 && specs[i].window > 0)
      fail_param(ErrorCode::kUnsupported, "kv_quant",
                 "--exact: layer {} slides, and mlx-lm quantizes no sliding cache; "
                 "--exact=mixed or a run without --exact does",
                 i);
  return specs;
}

}  // namespace mantou::cli
