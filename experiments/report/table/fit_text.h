// SPDX-License-Identifier: Apache-2.0
// fit_text.h: breaks text for people so that it fits a screen: long lines continue below their last
// column, a table that is too wide becomes several below each other. Nothing is left out.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "framework/export.h"

namespace convscope {

// Columns of the terminal that a stream (1 stdout, 2 stderr) is; without a terminal, what the
// variable COLUMNS says; 0: a file or a pipe, which takes lines of any length.
CONVSCOPE_API std::size_t screen_width(int descriptor);

// Of pages that are always broken, such as the help, where no screen says its width.
inline constexpr std::size_t kUsualWidth = 80;

// `width`: places of a line; 0: the text as it is. A word that is longer than a line stays whole,
// unless it has commas.
CONVSCOPE_API std::string fit_text(std::string_view text, std::size_t width);

// One paragraph behind `first`, the beginning of its first line; further lines begin at `column`.
CONVSCOPE_API std::string hanging_text(std::string first, std::string_view paragraph,
                                       std::size_t column, std::size_t width);

}  // namespace convscope
