// SPDX-License-Identifier: Apache-2.0
// fit_text.h: wraps text for people to a screen: long lines continue below their last column, and a
// table that is too wide becomes several tables. Nothing is left out.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "framework/export.h"

namespace convscope {

// Returns the columns of the terminal of a stream (1 stdout, 2 stderr). Without a terminal, returns
// the value of the variable COLUMNS. Returns 0 for a file or pipe, which takes lines of any length.
CONVSCOPE_API std::size_t screen_width(int descriptor);

// The width of texts that are always wrapped, such as the help, if no screen gives a width.
inline constexpr std::size_t kUsualWidth = 80;

// Returns the text in lines of `width` characters; 0: unchanged. A word longer than a line is split
// only at commas.
CONVSCOPE_API std::string fit_text(std::string_view text, std::size_t width);

// Wraps a paragraph. Its first line begins with the text `first`. The other lines are indented to
// `column`, or further if the paragraph's own lines are indented.
CONVSCOPE_API std::string hanging_text(std::string first, std::string_view paragraph,
                                       std::size_t column, std::size_t width);

}  // namespace convscope
