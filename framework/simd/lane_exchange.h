// SPDX-License-Identifier: Apache-2.0
// lane_exchange.h: functions for *_simd.cpp files that exchange lanes within groups of 2, 4
// or 8. Lane l receives the element of lane l xor d.
#pragma once

#include "framework/simd/simd.h"

namespace convscope::CONVSCOPE_ISA {

// The largest group whose lanes can be exchanged. A larger group fills whole vectors and needs no
// exchange.
inline constexpr int kExchangedGroup = kLanes < 16 ? kLanes / 2 : 8;

#if defined(CONVSCOPE_ISA_IS_AVX512)

// Gives lane l the element of lane l xor d, for a d that is known at run time. It is one shuffle,
// whose indices are in a register.
struct Exchange {
  explicit CONVSCOPE_INLINE Exchange(int d)
      : from(_mm512_xor_si512(
            _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
            _mm512_set1_epi32(d))) {}
  CONVSCOPE_INLINE Vec operator()(Vec a) const {
    return {_mm512_maskz_permutexvar_ps(0xffff, from, a.v)};  // _maskz_: as in simd.h
  }
  __m512i from;
};
// Does the same as Exchange for a d < 8 that is known at compile time, so no register holds
// indices.
CONVSCOPE_INLINE Vec exchanged(Vec a, int d) {
  if (d >= 4) a = {_mm512_maskz_shuffle_f32x4(0xffff, a.v, a.v, 0xb1)};
  switch (d & 3) {
    case 1:
      return {_mm512_maskz_permute_ps(0xffff, a.v, 0xb1)};
    case 2:
      return {_mm512_maskz_permute_ps(0xffff, a.v, 0x4e)};
    case 3:
      return {_mm512_maskz_permute_ps(0xffff, a.v, 0x1b)};
    default:
      return a;
  }
}

#elif defined(CONVSCOPE_ISA_IS_AVX2)

struct Exchange {
  explicit CONVSCOPE_INLINE Exchange(int d)
      : from(_mm256_xor_si256(_mm256_setr_epi32(0, 1, 2, 3, 0, 1, 2, 3), _mm256_set1_epi32(d))) {}
  CONVSCOPE_INLINE Vec operator()(Vec a) const { return {_mm256_permutevar_ps(a.v, from)}; }
  __m256i from;
};
CONVSCOPE_INLINE Vec exchanged(Vec a, int d) {
  switch (d) {
    case 1:
      return {_mm256_permute_ps(a.v, 0xb1)};
    case 2:
      return {_mm256_permute_ps(a.v, 0x4e)};
    case 3:
      return {_mm256_permute_ps(a.v, 0x1b)};
    default:
      return a;
  }
}

#elif defined(CONVSCOPE_ISA_IS_VECTOR4)

struct Exchange {
  explicit CONVSCOPE_INLINE Exchange(int) {}
  CONVSCOPE_INLINE Vec operator()(Vec a) const {
    return {__builtin_shufflevector(a.v, a.v, 1, 0, 3, 2)};
  }
};
CONVSCOPE_INLINE Vec exchanged(Vec a, int d) { return d == 0 ? a : Exchange(d)(a); }

#else  // a vector has one lane, so this is never called

struct Exchange {
  explicit CONVSCOPE_INLINE Exchange(int) {}
  CONVSCOPE_INLINE Vec operator()(Vec a) const { return a; }
};
CONVSCOPE_INLINE Vec exchanged(Vec a, int) { return a; }

#endif

}  // namespace convscope::CONVSCOPE_ISA
