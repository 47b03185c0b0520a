// SPDX-License-Identifier: Apache-2.0
// output_place.h: checks output paths before the work that produces the output.
#pragma once

#include <initializer_list>
#include <string>

#include "framework/export.h"

namespace convscope {

// Throws kIo for the first file that cannot be written; "" means no file.
CONVSCOPE_API void check_output_files(std::initializer_list<std::string> paths);
// Throws unless files can be created in the deepest existing folder of the path.
CONVSCOPE_API void check_output_folder(const std::string& path);

}  // namespace convscope
