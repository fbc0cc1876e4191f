// Files that belong to the user alone: what was said in chats. Any thread.
#pragma once

#include <filesystem>
#include <string_view>

namespace mantou::cli {

// Writes the whole file or leaves what was there; only the user may read it. Errors name the file
// and what the system said.
void write_private_file(const std::filesystem::path& path, std::string_view text);

// $XDG_STATE_HOME/mantou or ~/.local/state/mantou; empty when there is neither.
std::filesystem::path state_directory();

}  // namespace mantou::cli
