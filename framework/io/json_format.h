// SPDX-License-Identifier: Apache-2.0
// json_format.h: the field "format" of JSON files: "convscope bench conv2d 1". The number at its
// end changes when an older reader would misread the file.
#pragma once

#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

// Returns "" when `got` is one of `known`. Otherwise returns text to append to "got a file of ...":
// "the format 'convscope bench net 2', but this program reads 'convscope bench net 1'; ...".
CONVSCOPE_API std::string format_problem(const std::string& got,
                                         const std::vector<std::string>& known);

// Returns true if only the number at the end of `got` differs from `known`. Such a file comes from
// a newer program, and must not be overwritten.
CONVSCOPE_API bool is_other_version(const std::string& got, const std::string& known);

}  // namespace convscope
