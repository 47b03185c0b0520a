// SPDX-License-Identifier: Apache-2.0
// series_style.h: what tells series apart: colour, dashes and the shape of the marks together, so
// that colour-blind readers and black-and-white prints do not depend on the colour.
#pragma once

#include <string>
#include <string_view>

#include "framework/export.h"

namespace convscope {

inline constexpr int kStyles = 64;  // so many look different

// The style of an algorithm: by its name alone, so that it looks the same in every figure and file.
CONVSCOPE_API int algorithm_style(std::string_view name);

// "#0072b2"; Okabe and Ito's palette (2008), without its yellow, which is too light on white.
CONVSCOPE_API const char* style_color(int style);
// Value of stroke-dasharray; "" for a solid line.
const char* style_dashes(int style);
// An element for a mark centred at (x, y), of about `radius`, in the style's colour, or given one.
// `title` (escaped here) is shown when the pointer rests on it; "" = none. Hollow ones are white
// inside.
CONVSCOPE_API std::string style_mark(int style, double x, double y, double radius, bool hollow,
                                     const std::string& title, const char* color = nullptr);

}  // namespace convscope
