#include "hub/gguf_keys.h"

#include <limits>

#include "base/error.h"

namespace mantou::hub {

void fail_missing(const GgufFile& file, const std::string& key) {
  fail_param(ErrorCode::kCorruptData, key, "{}: metadata key \"{}\" is missing", file.origin(),
             key);
}

void check_range(const GgufFile& file, const std::string& key, int64_t value, int64_t min) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  if (value < min || value > kMax)
    fail_param(ErrorCode::kCorruptData, key, "{}: {} is {}, must be {} … {}", file.origin(), key,
               value, min, kMax);
}

int64_t require_int(const GgufFile& file, const std::string& key, int64_t min) {
  const auto value = file.get_int(key);
  if (!value) fail_missing(file, key);
  check_range(file, key, *value, min);
  return *value;
}

double require_double(const GgufFile& file, const std::string& key) {
  const auto value = file.get_double(key);
  if (!value) fail_missing(file, key);
  return *value;
}

std::vector<int64_t> layer_ints(const GgufFile& file, const std::string& key, int64_t layers,
                                int64_t min) {
  std::vector<int64_t> values = file.get_ints(key);
  if (!file.has(key)) fail_missing(file, key);
  for (const int64_t value : values) check_range(file, key, value, min);
  if (values.size() == 1) values.assign(size_t(layers), values[0]);
  if (values.size() != size_t(layers))
    fail_param(ErrorCode::kCorruptData, key, "{}: {} has {} elements for {} layers", file.origin(),
               key, values.size(), layers);
  return values;
}

}  // namespace mantou::hub
