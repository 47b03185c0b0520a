// SPDX-License-Identifier: Apache-2.0
// simd_math.h: exp and tanh of a float without branches or tables, so that the compiler vectorises
// loops that call them. For *_simd.cpp files only (see simd.h).
//
// exp: x = k ln2 + r with |r| <= ln2/2, exp(x) = 2^k exp(r). Adding 1.5 * 2^23 removes the fraction
// and gives k. ln2 is split in two so that k times the first part is exact (Cody, Waite 1980). The
// Taylor series up to r^7 has an error below 2^-27 of exp(r). Errors are below 2 units in the last
// place; overflow gives infinity, underflow rounds to 0, NaN stays NaN.
#pragma once

#include <cstdint>

#include "framework/simd/simd.h"

namespace convscope::CONVSCOPE_ISA {

struct Reduced {
  float r;         // x - k ln2
  std::int32_t k;  // nearest integer to x / ln2
};

CONVSCOPE_INLINE Reduced reduce_by_ln2(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23
  const float shifted = x * 1.44269504f + kRound;
  const float k = shifted - kRound;
  const float r = (x - k * 0.693359375f) + k * 2.12194440e-4f;  // 0.693359375 has 9 bits
  return {r, static_cast<std::int32_t>(bits_of_float(shifted) - 0x4B400000u)};
}

// Returns exp(r) - 1 for |r| <= ln2/2: r + r^2/2! + ... + r^7/7!, small terms first.
CONVSCOPE_INLINE float expm1_series(float r) {
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  return r + p * r * r;
}

CONVSCOPE_INLINE float power_of_two(std::int32_t k) {  // -126 <= k <= 127
  return float_of_bits(static_cast<std::uint32_t>(k + 127) << 23);
}

CONVSCOPE_INLINE float exp_of(float x) {
  x = choose_if(x > 89.0f, 89.0f, x);  // NaN passes through
  x = choose_if(x < -104.0f, -104.0f, x);
  const Reduced reduced = reduce_by_ln2(x);
  // Multiplies by two powers of 2, because 2^k may be out of range where the product is in range.
  const std::int32_t half = reduced.k >> 1;
  return (1.0f + expm1_series(reduced.r)) * power_of_two(half) * power_of_two(reduced.k - half);
}

// Returns tanh(|x|) = e / (e + 2) with e = exp(2|x|) - 1 = 2^k (exp(r) - 1) + (2^k - 1). For small
// x, k is 0 and there is no cancellation.
CONVSCOPE_INLINE float tanh_of(float x) {
  const std::uint32_t sign = bits_of_float(x) & 0x80000000u;
  float a = float_of_bits(bits_of_float(x) & 0x7fffffffu);
  a = choose_if(a > 10.0f, 10.0f, a);  // tanh(10) is 1 in float
  const Reduced reduced = reduce_by_ln2(2.0f * a);
  const float power = power_of_two(reduced.k & 63);  // & 63: limits the shift for NaN
  const float e = power * expm1_series(reduced.r) + (power - 1.0f);
  const float t = e / (e + 2.0f);
  return float_of_bits(bits_of_float(t) | sign);
}

CONVSCOPE_INLINE float sigmoid_of(float x) { return 1.0f / (1.0f + exp_of(-x)); }

}  // namespace convscope::CONVSCOPE_ISA
