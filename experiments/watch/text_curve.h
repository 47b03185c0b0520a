// SPDX-License-Identifier: Apache-2.0
// text_curve.h: a curve in characters, for a terminal.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "framework/export.h"

namespace convscope {

// Braille characters have 2 x 4 dots each; a terminal without UTF-8 gets stars.
enum class CurveInk { braille, stars };
// Returns the characters that the terminal can show, by the first of LC_ALL, LC_CTYPE and LANG that
// is set.
CONVSCOPE_API CurveInk ink_of_terminal();

// Returns `rows` lines of `columns` columns. The first line begins with the largest value, the last
// line with the smallest. Points are (x, y) in any order; non-finite values are left out. Returns
// no line when no finite point is left.
CONVSCOPE_API std::vector<std::string> text_curve(
    const std::vector<std::pair<double, double>>& points, int columns, int rows, CurveInk ink);

// Returns `text` in at most `columns` columns. Control characters, which would affect the terminal,
// become '?'.
CONVSCOPE_API std::string fit_text(const std::string& text, int columns);
// Returns the width in columns of a text without control characters: each character takes one
// column.
CONVSCOPE_API int columns_of(const std::string& text);

}  // namespace convscope
