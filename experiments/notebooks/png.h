// SPDX-License-Identifier: Apache-2.0
// png.h: an image as the bytes of a PNG file.
//
// Source: ISO/IEC 15948 (Portable Network Graphics), sections 5, 9 and 11.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

// Row-major, 8 bits per channel; one channel is grey, three are red, green, blue.
struct Pixels {
  std::int64_t height = 0, width = 0;
  int channels = 1;
  std::vector<std::uint8_t> values = {};  // [height, width, channels]
};

// Throws an error when the sizes do not match the values, or are invalid.
CONVSCOPE_API std::string to_png(const Pixels& pixels);

}  // namespace convscope
