// `mantou help models`: which models run, from the tables of models/ and hub/. Any thread.
#pragma once

#include <string>

namespace mantou::cli {

std::string help_models();
std::string help_models_markdown();  // docs/models.md

}  // namespace mantou::cli
