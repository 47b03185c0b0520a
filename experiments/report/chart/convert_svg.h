// SPDX-License-Identifier: Apache-2.0
// convert_svg.h: an SVG as PNG or PDF, by the program rsvg-convert where it is installed.
#pragma once

#include <string>

#include "framework/export.h"

namespace convscope {

// Absolute path of rsvg-convert in a folder of PATH, or "".
CONVSCOPE_API std::string svg_converter();

// Writes `file`, whose end says which: .png with so many pixels for an inch (an SVG's pixel is 1/96
// inch), or .pdf of the same size. Errors of kind kIo: no converter, and what the converter says.
CONVSCOPE_API void convert_svg(const std::string& svg, const std::string& file, int dpi);

}  // namespace convscope
