// SPDX-License-Identifier: Apache-2.0
// former_names.h: names of algorithms, layouts, options and columns that were renamed.
//
// Users have former names in configs, scripts and files. Each former name is accepted for one
// version, with a warning. `convscope` prints today's names only.
#pragma once

#include <string>
#include <string_view>

#include "framework/export.h"

namespace convscope {

// Returns today's name of an algorithm or a layout, or `word` itself if it is not a former name.
CONVSCOPE_API std::string_view todays_name(std::string_view word);
// Returns the same. Warns on stderr, once for each former name.
CONVSCOPE_API std::string_view accepted_name(std::string_view word);

// Warns on stderr, once for each former name, that `former` is now called `today`.
CONVSCOPE_API void warn_of_former_name(std::string_view former, std::string_view today);

// Replaces former names of algorithms, of columns and of the layouts of problems in the text of
// `file`, which an older version has written as JSON or CSV. Warns on stderr, once in a process.
CONVSCOPE_API std::string with_todays_names(std::string text, const std::string& file);

}  // namespace convscope
