// SPDX-License-Identifier: Apache-2.0
// sparkline.h: a curve as small as a word.
#pragma once

#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

// An SVG of 84 x 22 pixels, in the colour of the page's style, or "" for no value. `title` is what
// readers without eyes, and the pointer, are told.
CONVSCOPE_API std::string sparkline(const std::vector<double>& values, const std::string& title);

}  // namespace convscope
