// Numbers and names as people read them; shared by the verbs that print tables.
#pragma once

#include <string>
#include <string_view>

#include "hub/model_artifact.h"

namespace mantou::cli {

std::string human_bytes(double bytes);             // "93.8 MiB"
std::string_view format_name(hub::Format format);  // "gguf", "directory"

}  // namespace mantou::cli
