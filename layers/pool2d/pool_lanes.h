// SPDX-License-Identifier: Apache-2.0
// pool_lanes.h: compares two vectors lane by lane, and converts integers 0..255 to u8; for the
// *_simd.cpp files of this folder.
#pragma once

#include <cstdint>

#include "framework/simd/simd.h"
#include "framework/simd/simd_math.h"

namespace convscope::CONVSCOPE_ISA {

#if defined(CONVSCOPE_ISA_IS_AVX512)

using Mask = __mmask16;
// Returns the lanes where b is larger than a, or NaN.
CONVSCOPE_INLINE Mask beats(Vec b, Vec a) {
  return static_cast<Mask>(_mm512_cmp_ps_mask(b.v, a.v, _CMP_GT_OQ) |
                           _mm512_cmp_ps_mask(b.v, b.v, _CMP_UNORD_Q));
}
CONVSCOPE_INLINE Mask greater(Vec a, Vec b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ); }
CONVSCOPE_INLINE Mask unordered(Vec a, Vec b) {  // a or b is NaN
  return _mm512_cmp_ps_mask(a.v, b.v, _CMP_UNORD_Q);
}
CONVSCOPE_INLINE Mask either(Mask a, Mask b) { return static_cast<Mask>(a | b); }
CONVSCOPE_INLINE bool any(Mask a) { return a != 0; }
CONVSCOPE_INLINE Vec choose(Mask second, Vec a, Vec b) {
  return {_mm512_mask_blend_ps(second, a.v, b.v)};
}
struct Taps {
  __m128i v;
};
CONVSCOPE_INLINE Taps load_taps(const std::uint8_t* from, int count) {
  return {_mm_maskz_loadu_epi8(first_lanes(count), from)};
}
CONVSCOPE_INLINE void store_bytes(std::uint8_t* to, Vec whole, int count) {
  _mm_mask_storeu_epi8(
      to, first_lanes(count),
      _mm512_maskz_cvtepi32_epi8(0xffff, _mm512_maskz_cvtps_epi32(0xffff, whole.v)));
}
// Returns dy where the tap is `tap`, otherwise 0.
CONVSCOPE_INLINE Vec only_where(Taps taps, int tap, Vec dy) {
  return {_mm512_maskz_mov_ps(_mm_cmpeq_epi8_mask(taps.v, _mm_set1_epi8(static_cast<char>(tap))),
                              dy.v)};
}

#elif defined(CONVSCOPE_ISA_IS_AVX2)

using Mask = __m256;
CONVSCOPE_INLINE Mask beats(Vec b, Vec a) {
  return _mm256_or_ps(_mm256_cmp_ps(b.v, a.v, _CMP_GT_OQ), _mm256_cmp_ps(b.v, b.v, _CMP_UNORD_Q));
}
CONVSCOPE_INLINE Mask greater(Vec a, Vec b) { return _mm256_cmp_ps(a.v, b.v, _CMP_GT_OQ); }
CONVSCOPE_INLINE Mask unordered(Vec a, Vec b) { return _mm256_cmp_ps(a.v, b.v, _CMP_UNORD_Q); }
CONVSCOPE_INLINE Mask either(Mask a, Mask b) { return _mm256_or_ps(a, b); }
CONVSCOPE_INLINE bool any(Mask a) { return _mm256_movemask_ps(a) != 0; }
CONVSCOPE_INLINE Vec choose(Mask second, Vec a, Vec b) {
  return {_mm256_blendv_ps(a.v, b.v, second)};
}
// Stores eight integers 0..255 as u8.
CONVSCOPE_INLINE void store_eight(std::uint8_t* to, __m256i numbers, int count) {
  const __m128i words =
      _mm_packs_epi32(_mm256_castsi256_si128(numbers), _mm256_extracti128_si256(numbers, 1));
  const __m128i bytes = _mm_packus_epi16(words, words);
  auto packed = static_cast<unsigned long long>(_mm_cvtsi128_si64(bytes));
  if (count == kLanes) {
    __builtin_memcpy(to, &packed, kLanes);
  } else {
    for (int i = 0; i < count; ++i, packed >>= 8) to[i] = static_cast<std::uint8_t>(packed & 0xff);
  }
}
CONVSCOPE_INLINE void store_bytes(std::uint8_t* to, Vec whole, int count) {
  store_eight(to, _mm256_cvtps_epi32(whole.v), count);
}
struct Taps {
  __m256i v;
};
CONVSCOPE_INLINE Taps load_taps(const std::uint8_t* from, int count) {
  unsigned long long packed = 0;
  if (count == kLanes) {
    __builtin_memcpy(&packed, from, kLanes);
  } else {
    for (int i = 0; i < count; ++i) packed |= static_cast<unsigned long long>(from[i]) << (8 * i);
  }
  return {_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<long long>(packed)))};
}
CONVSCOPE_INLINE Vec only_where(Taps taps, int tap, Vec dy) {
  const __m256i here = _mm256_cmpeq_epi32(taps.v, _mm256_set1_epi32(tap));
  return {_mm256_and_ps(dy.v, _mm256_castsi256_ps(here))};
}

#else  // one lane

using Mask = bool;
// Avoids branches, because the larger of two pixels cannot be predicted.
CONVSCOPE_INLINE Mask beats(Vec b, Vec a) { return (b.v > a.v) | (b.v != b.v); }
CONVSCOPE_INLINE Mask greater(Vec a, Vec b) { return a.v > b.v; }
CONVSCOPE_INLINE Mask unordered(Vec a, Vec b) { return (a.v != a.v) | (b.v != b.v); }
CONVSCOPE_INLINE Mask either(Mask a, Mask b) { return a | b; }
CONVSCOPE_INLINE bool any(Mask a) { return a; }
CONVSCOPE_INLINE Vec choose(Mask second, Vec a, Vec b) { return {choose_if(second, b.v, a.v)}; }
CONVSCOPE_INLINE void store_bytes(std::uint8_t* to, Vec whole, int) {
  *to = static_cast<std::uint8_t>(whole.v);
}
struct Taps {
  std::uint8_t v;
};
CONVSCOPE_INLINE Taps load_taps(const std::uint8_t* from, int) { return {*from}; }
CONVSCOPE_INLINE Vec only_where(Taps taps, int tap, Vec dy) {
  return {choose_if(taps.v == tap, dy.v, 0.0f)};
}

#endif

}  // namespace convscope::CONVSCOPE_ISA
