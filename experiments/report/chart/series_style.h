// SPDX-License-Identifier: Apache-2.0
// series_style.h: styles of series: colour, dashes and shape of marks together, so that
// colour-blind readers and black-and-white prints do not depend on the colour.
#pragma once

#include <string>
#include <string_view>

#include "framework/export.h"

namespace convscope {

inline constexpr int kStyles = 64;  // number of distinct styles

// Returns the style of an algorithm from its name, the same in every figure and file.
CONVSCOPE_API int algorithm_style(std::string_view name);

// Returns "#0072b2": Okabe and Ito's palette (2008) without yellow, which is too light on white.
CONVSCOPE_API const char* style_color(int style);
// Returns the value of stroke-dasharray; "" for a solid line.
const char* style_dashes(int style);
// Returns a mark centred at (x, y), of about `radius`, in `color` or, by default, in the style's
// colour. `title` (escaped here) is the tooltip; "" = none. Hollow marks are white inside.
CONVSCOPE_API std::string style_mark(int style, double x, double y, double radius, bool hollow,
                                     const std::string& title, const char* color = nullptr);

}  // namespace convscope
