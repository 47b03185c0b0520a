// SPDX-License-Identifier: Apache-2.0
// svg_text.h: text in SVG and HTML: escaping, width, shortening.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "framework/export.h"

namespace convscope {

// Returns `text` with & < > " ' replaced; control characters and broken UTF-8, which XML does not
// allow, become U+FFFD.
CONVSCOPE_API std::string escape_markup(std::string_view text);

// Estimates the width in pixels. The estimate is rather too large than too small, because the font
// of the reader is unknown.
CONVSCOPE_API double text_width(std::string_view text, double font_size);

// Returns `text` or, if it does not fit, its beginning and end with an ellipsis between them. Both
// are kept because names differ at both.
CONVSCOPE_API std::string elide(std::string_view text, double font_size, double width);

// Returns `text` in at most `most_lines` lines of at most `width`. A line breaks at a space; if
// there is none, after one of . , _ = / - +; otherwise anywhere. The last line is shortened if the
// rest does not fit. "" has no lines.
CONVSCOPE_API std::vector<std::string> wrap_text(std::string_view text, double font_size,
                                                 double width, std::size_t most_lines);

// Returns a measured number with three significant digits, "0.550". With a deviation, the deviation
// has two significant digits, and the number as many decimals: "1.2903 ± 0.0043". Returns "-" for
// non-finite values.
CONVSCOPE_API std::string measured_text(double value, double std = 0);

// Returns at most six significant digits: "0.5", "12000", "1e-07".
CONVSCOPE_API std::string number_text(double value, int digits = 6);

}  // namespace convscope
