// SPDX-License-Identifier: Apache-2.0
// config_file.h: reading a config's text from its file.
#pragma once

#include <string>
#include <string_view>

namespace convscope::config {

// Throws Error of kind kConfig when there is no such file, of kind kIo when it cannot be read; the
// sentence is the bare reason, such as "a folder".
std::string read_file(const std::string& path);
// The same for the file that the user named: the sentence says so.
std::string read_named_file(const std::string& path);
// "experiments/configs/quickstart.yaml" -> "quickstart"
std::string name_from_file(std::string_view file_name);
// The text with '_' for what a folder's name may not hold.
std::string folder_name(std::string_view text);

}  // namespace convscope::config
