// SPDX-License-Identifier: Apache-2.0
// int8_bytes.h: how real numbers and signed codes become the bytes that the products take.
#pragma once

#include <cstdint>

#include "framework/simd/cpu_isa.h"

namespace convscope {

// to[p pixel + c] = clip(round(from[c plane + p] / step), low, high) + offset, rounded half to even
// in double, for channels c < channels <= 16 and p < pixels. Where lanes > channels, the bytes of
// the others become 0.
struct RoundedRow {
  int channels = 1, lanes = 1;
  std::int64_t pixels = 0, plane = 0;
  const float* from = nullptr;
  double step = 1;
  std::int32_t low = 0, high = 255, offset = 0;
  std::int64_t pixel = 1;
  std::uint8_t* to = nullptr;
};

struct Int8Bytes {
  void (*round)(const RoundedRow& row) = nullptr;
  // to = from + 128 modulo 256: signed codes as 0..255.
  void (*flip)(const std::uint8_t* from, std::int64_t count, std::uint8_t* to) = nullptr;
};

extern IsaTable<Int8Bytes> int8_bytes;

}  // namespace convscope
