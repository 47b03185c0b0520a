// SPDX-License-Identifier: Apache-2.0
// integer_grid.h: the integer codes that represent real numbers, and the one function that rounds
// to these codes. Fake quantisation (lsq.h), calibration and integer execution all call code_of(),
// so their scale, clipping and rounding always agree.
//
//   code = round(clip(v / s, -Qn, Qp)),   value = s code
//   signed, b bits:    Qn = 2^(b-1), Qp = 2^(b-1) - 1        (8 bits: -128..127)
//   unsigned, b bits:  Qn = 0,       Qp = 2^b - 1            (8 bits: 0..255)
//
// 0 always has the code 0: zero padding needs no offset.
#pragma once

#include "framework/export.h"
#include "framework/host_device.h"

namespace convscope {

inline constexpr int kMinBits = 2;
inline constexpr int kMaxBits = 8;

struct IntegerGrid {
  int qn = 128;  // the lowest code is -qn
  int qp = 127;  // the highest code
  bool operator==(const IntegerGrid&) const = default;
};

CONVSCOPE_API IntegerGrid integer_grid(int bits, bool is_signed);

// Returns u clipped to [low, high]. clip_to(), round_half_even() and code_of() are always inlined,
// so a file that is compiled for one instruction set may use them (framework/simd/simd.h).
template <class T>
[[gnu::always_inline]] CONVSCOPE_HOST_DEVICE inline T clip_to(T u, T low, T high) {
  u = low > u ? low : u;  // written so that NaN passes
  return high < u ? high : u;
}

// Rounds half to even, as IEEE 754 and PyTorch's round: adding 1.5 * 2^(mantissa bits - 1) shifts
// the fraction out of the number. Correct for |u| <= 2^21.
[[gnu::always_inline]] CONVSCOPE_HOST_DEVICE inline float round_half_even(float u) {
  constexpr float kShift = 12582912.0f;  // 1.5 * 2^23
  return (u + kShift) - kShift;
}
[[gnu::always_inline]] CONVSCOPE_HOST_DEVICE inline double round_half_even(double u) {
  constexpr double kShift = 6755399441055744.0;  // 1.5 * 2^52
  return (u + kShift) - kShift;
}

// Returns the integer code of v, as a number of the floating-point type T. The arguments `low` and
// `high` are the limits of codes, -Qn and Qp. The function divides v by s, because a product with
// 1 / s would round differently.
template <class T>
[[gnu::always_inline]] CONVSCOPE_HOST_DEVICE inline T code_of(T v, T s, T low, T high) {
  return round_half_even(clip_to(v / s, low, high));
}

}  // namespace convscope
