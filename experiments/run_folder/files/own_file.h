// SPDX-License-Identifier: Apache-2.0
// own_file.h: files that the program writes in a folder of a run or of a sweep.
//
// Such a folder may come from somebody else, and a symbolic link in it would lead a write to any
// file of the user. So a write follows no link inside the folder: a link in place of a file that is
// rewritten is replaced by the file, every other link is refused. The folder itself may be a link.
#pragma once

#include <string>
#include <string_view>

#include "framework/export.h"

namespace convscope {

// Path of folder/name, for a file that is rewritten as a whole; a link of this name is removed.
// Throws an error of kind kIo when a sub-folder in `name` is a link.
CONVSCOPE_API std::string own_path(const std::string& folder, std::string_view name);

// Throws an error of kind kIo when `path` is a link.
CONVSCOPE_API void refuse_link(const std::string& path);

// As open(2) with O_CLOEXEC and rights 0644; a link is refused as an error of kind kIo. -1 with
// errno: another failure.
CONVSCOPE_API int open_own(const std::string& path, int flags);

}  // namespace convscope
