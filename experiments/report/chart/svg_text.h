// SPDX-License-Identifier: Apache-2.0
// svg_text.h: text in SVG and HTML: what must be escaped, how wide it gets, how it is shortened.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "framework/export.h"

namespace convscope {

// `text` with & < > " ' replaced; control characters and broken UTF-8, which no XML may hold,
// become U+FFFD.
CONVSCOPE_API std::string escape_markup(std::string_view text);

// Width in pixels, a little too large rather than too small: there is no font to ask, readers have
// different ones.
CONVSCOPE_API double text_width(std::string_view text, double font_size);

// `text`, or its two ends with an ellipsis between, so that it fits; names differ at both ends.
CONVSCOPE_API std::string elide(std::string_view text, double font_size, double width);

// `text` in at most `most_lines` lines of at most `width`, broken at spaces, else behind one of
// . , _ = / - +, else anywhere; the last line is shortened when the rest does not fit. None for "".
CONVSCOPE_API std::vector<std::string> wrap_text(std::string_view text, double font_size,
                                                 double width, std::size_t most_lines);

// A measured number: three significant digits, "0.550"; with a deviation, as many decimals as two
// digits of that need: "1.2903 ± 0.0043". "-" for what is not finite.
CONVSCOPE_API std::string measured_text(double value, double std = 0);

// At most six significant digits: "0.5", "12000", "1e-07".
CONVSCOPE_API std::string number_text(double value, int digits = 6);

}  // namespace convscope
