// SPDX-License-Identifier: Apache-2.0
// sparkline.h: a word-sized curve.
#pragma once

#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

// Returns an SVG of 84 x 22 pixels in the colour of the page's style, or "" without a value.
// `title` is for the tooltip and for screen readers.
CONVSCOPE_API std::string sparkline(const std::vector<double>& values, const std::string& title);

}  // namespace convscope
