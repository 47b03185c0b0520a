// SPDX-License-Identifier: Apache-2.0
// output_place.h: places to write to, checked before the work whose result goes there.
#pragma once

#include <initializer_list>
#include <string>

#include "framework/export.h"

namespace convscope {

// Files: an error of kind kIo for the first of them that cannot be written; "" stands for none.
CONVSCOPE_API void check_output_files(std::initializer_list<std::string> paths);
// A folder that is there or will be made: the deepest folder of its path that is there takes files.
CONVSCOPE_API void check_output_folder(const std::string& path);

}  // namespace convscope
