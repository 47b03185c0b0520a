// SPDX-License-Identifier: Apache-2.0
// own_file.h: files that the program writes in the folder of a run or sweep.
//
// Such a folder may come from another person, and a symbolic link in it could lead a write to any
// file of the user. Therefore a write follows no link inside the folder. If the name of a rewritten
// file is a link, the new file replaces the link; any other link is refused. The folder itself may
// be a link.
#pragma once

#include <string>
#include <string_view>

#include "framework/export.h"

namespace convscope {

// Returns the path of folder/name for a file that is rewritten as a whole; removes a link of this
// name. Fails with kIo when a sub-folder in `name` is a link.
CONVSCOPE_API std::string own_path(const std::string& folder, std::string_view name);

// Fails with kIo when `path` is a link.
CONVSCOPE_API void refuse_link(const std::string& path);

// Calls open(2) with O_CLOEXEC and rights 0644; fails with kIo for a link. Returns -1 with errno
// for other failures.
CONVSCOPE_API int open_own(const std::string& path, int flags);

// Returns whether another process holds the lock of a folder, its file .lock.
CONVSCOPE_API bool is_locked(const std::string& folder);

}  // namespace convscope
