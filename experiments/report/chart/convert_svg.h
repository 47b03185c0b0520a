// SPDX-License-Identifier: Apache-2.0
// convert_svg.h: converts an SVG to PNG or PDF with the program rsvg-convert.
#pragma once

#include <string>

#include "framework/export.h"

namespace convscope {

// Returns the absolute path of rsvg-convert in a folder of PATH, or "".
CONVSCOPE_API std::string svg_converter();

// Writes `file`. The extension .png selects a picture with this many pixels per inch (an SVG pixel
// is 1/96 inch); .pdf selects a page of the same size. Fails with kIo when rsvg-convert is missing,
// or with its message.
CONVSCOPE_API void convert_svg(const std::string& svg, const std::string& file, int dpi);

}  // namespace convscope
