// SPDX-License-Identifier: Apache-2.0
// config_file.h: reads the text of config files.
#pragma once

#include <string>
#include <string_view>

namespace convscope::config {

// Returns the text. Throws Error of kind kConfig when the file is missing, kIo when it cannot be
// read. The error's sentence is only the reason, such as "a folder".
std::string read_file(const std::string& path);
// Returns the text of the file that the user named; the error sentence contains the name.
std::string read_named_file(const std::string& path);
// Returns "quickstart" for "experiments/configs/quickstart.yaml".
std::string name_from_file(std::string_view file_name);
// Returns the text with '_' for characters that a folder name may not contain.
std::string folder_name(std::string_view text);

}  // namespace convscope::config
