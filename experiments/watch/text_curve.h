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
// What LC_ALL, LC_CTYPE or LANG, the first that is set, says of the terminal.
CONVSCOPE_API CurveInk ink_of_terminal();

// `rows` lines of `columns` columns. The largest value stands in front of the first, the smallest
// in front of the last. Points are (x, y) in any order; values that are not finite are left out. No
// line at all when nothing is left.
CONVSCOPE_API std::vector<std::string> text_curve(
    const std::vector<std::pair<double, double>>& points, int columns, int rows, CurveInk ink);

// `text` in at most `columns` columns. Control characters, which a log or a name may hold, become
// '?': they would drive the terminal.
CONVSCOPE_API std::string fit_text(const std::string& text, int columns);
// Columns that a text without control characters takes, one for each character.
CONVSCOPE_API int columns_of(const std::string& text);

}  // namespace convscope
