// SPDX-License-Identifier: Apache-2.0
// clean_text.h: makes text from files, names and configs safe to print on a terminal. Without it,
// control characters in such a text could move the cursor, change colours, overwrite text, or
// rename the window.
#pragma once

#include <string>
#include <string_view>

#include "framework/export.h"

namespace convscope {

// Returns the text with unsafe characters replaced by U+FFFD: control characters except line end
// and tab, marks that reverse the writing direction, and bytes that are not valid UTF-8.
CONVSCOPE_API std::string clean_text(std::string_view text);
// Does the same, and puts the text on one line: line ends and tabs become spaces.
CONVSCOPE_API std::string clean_line(std::string_view text);

}  // namespace convscope
