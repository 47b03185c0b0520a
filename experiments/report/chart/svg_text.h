// SPDX-License-Identifier: Apache-2.0
// svg_text.h: text in SVG and HTML: what must be escaped, how wide it gets, how it is shortened.
#pragma once

#include <string>
#include <string_view>

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

// At most six significant digits: "0.5", "12000", "1e-07".
CONVSCOPE_API std::string number_text(double value, int digits = 6);

}  // namespace convscope
