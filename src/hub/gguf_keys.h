// Metadata of GGUF files with limits: what is missing, out of range or of the wrong length is an
// error that names file and key. Stateless; any thread.
#pragma once

#include <string>
#include <vector>

#include "hub/gguf.h"

namespace mantou::hub {

[[noreturn]] void fail_missing(const GgufFile& file, const std::string& key);

// `value`, read under `key`, must be `min` … 2³¹ − 1.
void check_range(const GgufFile& file, const std::string& key, int64_t value, int64_t min);

int64_t require_int(const GgufFile& file, const std::string& key, int64_t min);
double require_double(const GgufFile& file, const std::string& key);

// One number for each of `layers` layers, where the file has one for all or one for each.
std::vector<int64_t> layer_ints(const GgufFile& file, const std::string& key, int64_t layers,
                                int64_t min);

}  // namespace mantou::hub
