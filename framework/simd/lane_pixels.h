// SPDX-License-Identifier: Apache-2.0
// lane_pixels.h: vectors of at least four lanes, and pixels interleaved in them; for *_simd.cpp
// files. A `Wide` is simd.h's Vec. Only the scalar copy has four lanes instead of one, so that its
// images have the layout of vector4. wide:: qualifies functions without a Wide among their
// arguments: wide::load(p).
//
// A vector of kWide lanes holds one pixel of kWide samples, or Ratio pixels of kWide / Ratio
// samples.
#pragma once

#include "framework/simd/simd.h"
#include "framework/simd/vector4.h"

namespace convscope::CONVSCOPE_ISA {

#if defined(CONVSCOPE_ISA_IS_SCALAR)
namespace wide = four;
#else
namespace wide = ::convscope::CONVSCOPE_ISA;
#endif
using Wide = wide::Vec;
inline constexpr int kWide = wide::kLanes;

#if defined(CONVSCOPE_ISA_IS_AVX512)

// Returns the even (odd) pixels of a followed by b.
template <int Ratio>
CONVSCOPE_INLINE Wide even_pixels(Wide a, Wide b) {
  if constexpr (Ratio == 1) return a;
  if constexpr (Ratio == 2) return {_mm512_maskz_shuffle_f32x4(0xffff, a.v, b.v, 0x44)};
  return {_mm512_maskz_shuffle_f32x4(0xffff, a.v, b.v, 0x88)};
}
template <int Ratio>
CONVSCOPE_INLINE Wide odd_pixels(Wide a, Wide b) {
  if constexpr (Ratio == 1) return b;
  if constexpr (Ratio == 2) return {_mm512_maskz_shuffle_f32x4(0xffff, a.v, b.v, 0xee)};
  return {_mm512_maskz_shuffle_f32x4(0xffff, a.v, b.v, 0xdd)};
}
// Returns the first (second) half of even0 odd0 even1 odd1 ...
template <int Ratio>
CONVSCOPE_INLINE Wide weave_first(Wide even, Wide odd) {
  if constexpr (Ratio == 1) return even;
  if constexpr (Ratio == 2) return {_mm512_maskz_shuffle_f32x4(0xffff, even.v, odd.v, 0x44)};
  const __m512i at = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  return {_mm512_permutex2var_ps(even.v, at, odd.v)};
}
template <int Ratio>
CONVSCOPE_INLINE Wide weave_second(Wide even, Wide odd) {
  if constexpr (Ratio == 1) return odd;
  if constexpr (Ratio == 2) return {_mm512_maskz_shuffle_f32x4(0xffff, even.v, odd.v, 0xee)};
  const __m512i at =
      _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
  return {_mm512_permutex2var_ps(even.v, at, odd.v)};
}

#elif defined(CONVSCOPE_ISA_IS_AVX2)

template <int Ratio>
CONVSCOPE_INLINE Wide even_pixels(Wide a, Wide b) {
  if constexpr (Ratio == 1) return a;
  return {_mm256_permute2f128_ps(a.v, b.v, 0x20)};
}
template <int Ratio>
CONVSCOPE_INLINE Wide odd_pixels(Wide a, Wide b) {
  if constexpr (Ratio == 1) return b;
  return {_mm256_permute2f128_ps(a.v, b.v, 0x31)};
}
template <int Ratio>
CONVSCOPE_INLINE Wide weave_first(Wide even, Wide odd) {
  return even_pixels<Ratio>(even, odd);  // with two pixels, this is the same permutation
}
template <int Ratio>
CONVSCOPE_INLINE Wide weave_second(Wide even, Wide odd) {
  return odd_pixels<Ratio>(even, odd);
}

#else  // a vector holds one pixel

template <int Ratio>
CONVSCOPE_INLINE Wide even_pixels(Wide a, Wide) {
  return a;
}
template <int Ratio>
CONVSCOPE_INLINE Wide odd_pixels(Wide, Wide b) {
  return b;
}
template <int Ratio>
CONVSCOPE_INLINE Wide weave_first(Wide even, Wide) {
  return even;
}
template <int Ratio>
CONVSCOPE_INLINE Wide weave_second(Wide, Wide odd) {
  return odd;
}

#endif

// Keeps a loaded value in a register: GCC would load it again for each use.
CONVSCOPE_INLINE void keep_in_register(Wide& a) {
  if constexpr (kWide > 4) a = opaque(a);  // an SSE2 instruction takes no unaligned operand
}

CONVSCOPE_INLINE Wide no_wide() { return wide::broadcast(0.0f); }
CONVSCOPE_INLINE Wide rectified(Wide a) { return keep(passes_relu(a), a); }

}  // namespace convscope::CONVSCOPE_ISA
