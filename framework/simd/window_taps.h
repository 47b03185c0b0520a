// SPDX-License-Identifier: Apache-2.0
// window_taps.h: one u8 per lane, such as the index of the largest pixel of a pooling window; for
// *_simd.cpp files. In a 2x2 window, indices 0 and 1 are the upper row, 2 and 3 the lower row, from
// left to right.
//
//   load_taps store_bytes                the bytes of a vector of outputs
//   won(taps, tap)                       a mask of the lanes whose byte is `tap`
//   store_taps store_winners             the index of the largest pixel, from comparisons
//   store_largest                        the largest of four pixels and its index
#pragma once

#include "framework/simd/lane_pixels.h"

namespace convscope::CONVSCOPE_ISA {

#if defined(CONVSCOPE_ISA_IS_AVX512)

struct Taps {
  __m128i v;
};
CONVSCOPE_INLINE Taps load_taps(const std::uint8_t* p) {
  return {_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))};
}
CONVSCOPE_INLINE Taps load_taps(const std::uint8_t* p, int count) {
  return {_mm_maskz_loadu_epi8(first_lanes(count), p)};
}
CONVSCOPE_INLINE Mask won(Taps taps, int tap) {
  return _mm_cmpeq_epi8_mask(taps.v, _mm_set1_epi8(static_cast<char>(tap)));
}
// Masks of the lanes whose byte has (or lacks) a bit.
CONVSCOPE_INLINE Mask taps_with(Taps taps, int bit) {
  return _mm_test_epi8_mask(taps.v, _mm_set1_epi8(static_cast<char>(bit)));
}
CONVSCOPE_INLINE Mask taps_without(Taps taps, int bit) {
  return _mm_testn_epi8_mask(taps.v, _mm_set1_epi8(static_cast<char>(bit)));
}
// Stores `whole`, numbers 0..255, as u8.
CONVSCOPE_INLINE void store_bytes(std::uint8_t* to, Vec whole, int count) {
  _mm_mask_storeu_epi8(
      to, first_lanes(count),
      _mm512_maskz_cvtepi32_epi8(0xffff, _mm512_maskz_cvtps_epi32(0xffff, whole.v)));
}
// Stores the index of the largest pixel. `below` says that the pixel is in the lower row.
// right_above and right_below say whether the larger pixel of that row is the right one.
CONVSCOPE_INLINE void store_taps(std::uint8_t* to, Mask below, Mask right_above, Mask right_below,
                                 int count) {
  const auto right = static_cast<Mask>((below & right_below) | (~below & right_above));
  const __m128i taps = _mm_or_si128(_mm_maskz_set1_epi8(below, 2), _mm_maskz_set1_epi8(right, 1));
  _mm_mask_storeu_epi8(to, first_lanes(count), taps);
}
// Does the same for all lanes, and stores 4 in lanes where `passes` is not set.
CONVSCOPE_INLINE void store_winners(std::uint8_t* to, Mask below, Mask right_above,
                                    Mask right_below, Mask passes) {
  const __m128i above = _mm_maskz_set1_epi8(right_above, 1);
  const __m128i under = _mm_mask_blend_epi8(right_below, _mm_set1_epi8(2), _mm_set1_epi8(3));
  const __m128i tap = _mm_mask_blend_epi8(below, above, under);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm_mask_blend_epi8(passes, _mm_set1_epi8(4), tap));
}

#elif defined(CONVSCOPE_ISA_IS_AVX2)

struct Taps {
  __m256i v;
};
CONVSCOPE_INLINE Taps load_taps(const std::uint8_t* p) {
  return {_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)))};
}
CONVSCOPE_INLINE Taps load_taps(const std::uint8_t* p, int count) {
  if (count == kLanes) return load_taps(p);
  unsigned long long packed = 0;
  for (int i = 0; i < count; ++i) packed |= static_cast<unsigned long long>(p[i]) << (8 * i);
  return {_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<long long>(packed)))};
}
CONVSCOPE_INLINE Mask won(Taps taps, int tap) {
  return _mm256_castsi256_ps(_mm256_cmpeq_epi32(taps.v, _mm256_set1_epi32(tap)));
}
// Stores eight integers 0..255 as u8.
CONVSCOPE_INLINE void store_taps(std::uint8_t* to, Taps taps, int count) {
  const __m128i words =
      _mm_packs_epi32(_mm256_castsi256_si128(taps.v), _mm256_extracti128_si256(taps.v, 1));
  const __m128i bytes = _mm_packus_epi16(words, words);
  if (count == kLanes) return _mm_storel_epi64(reinterpret_cast<__m128i*>(to), bytes);
  auto packed = static_cast<unsigned long long>(_mm_cvtsi128_si64(bytes));
  for (int i = 0; i < count; ++i, packed >>= 8) to[i] = static_cast<std::uint8_t>(packed & 0xff);
}
CONVSCOPE_INLINE void store_bytes(std::uint8_t* to, Vec whole, int count) {
  store_taps(to, {_mm256_cvtps_epi32(whole.v)}, count);
}
CONVSCOPE_INLINE Taps taps_of(Mask below, Mask right_above, Mask right_below) {
  const __m256i right = _mm256_castps_si256(_mm256_blendv_ps(right_above, right_below, below));
  return {_mm256_or_si256(_mm256_and_si256(_mm256_castps_si256(below), _mm256_set1_epi32(2)),
                          _mm256_and_si256(right, _mm256_set1_epi32(1)))};
}
CONVSCOPE_INLINE void store_taps(std::uint8_t* to, Mask below, Mask right_above, Mask right_below,
                                 int count) {
  store_taps(to, taps_of(below, right_above, right_below), count);
}
CONVSCOPE_INLINE void store_winners(std::uint8_t* to, Mask below, Mask right_above,
                                    Mask right_below, Mask passes) {
  const __m256 taps = _mm256_castsi256_ps(taps_of(below, right_above, right_below).v);
  const __m256 none = _mm256_castsi256_ps(_mm256_set1_epi32(4));
  store_taps(to, {_mm256_castps_si256(_mm256_blendv_ps(none, taps, passes))}, kLanes);
}

#elif defined(CONVSCOPE_ISA_IS_SCALAR)

struct Taps {
  std::uint8_t v;
};
CONVSCOPE_INLINE Taps load_taps(const std::uint8_t* p) { return {*p}; }
CONVSCOPE_INLINE Taps load_taps(const std::uint8_t* p, int) { return {*p}; }
CONVSCOPE_INLINE Mask won(Taps taps, int tap) { return taps.v == tap; }
CONVSCOPE_INLINE void store_bytes(std::uint8_t* to, Vec whole, int) {
  *to = static_cast<std::uint8_t>(whole.v);
}
CONVSCOPE_INLINE void store_taps(std::uint8_t* to, Mask below, Mask right_above, Mask right_below,
                                 int) {
  *to = static_cast<std::uint8_t>(2 * below + ((below & right_below) | (!below & right_above)));
}

#endif

#if defined(CONVSCOPE_ISA_IS_VECTOR4) || defined(CONVSCOPE_ISA_IS_SCALAR)

namespace four {

struct Taps {
  Words v;
};
CONVSCOPE_INLINE Taps load_taps(const std::uint8_t* p) { return {widened(load_four_bytes(p)).v}; }
CONVSCOPE_INLINE Taps load_taps(const std::uint8_t* p, int count) {
  if (count == kLanes) return load_taps(p);
  Taps taps{};
  for (int i = 0; i < kLanes; ++i) {
    if (i < count) taps.v[i] = p[i];
  }
  return taps;
}
CONVSCOPE_INLINE Mask won(Taps taps, int tap) { return {taps.v == tap}; }
CONVSCOPE_INLINE void store_taps(std::uint8_t* to, Taps taps, int count) {
  const Codes bytes = low_bytes({taps.v}, {taps.v}, {taps.v}, {taps.v});
  if (count == kLanes) {
    __builtin_memcpy(to, &bytes, 4);
    return;
  }
  for (int i = 0; i < kLanes; ++i) {
    if (i < count) to[i] = bytes[i];
  }
}
CONVSCOPE_INLINE void store_bytes(std::uint8_t* to, Vec whole, int count) {
  store_taps(to, {__builtin_convertvector(whole.v, Words)}, count);
}
CONVSCOPE_INLINE Taps taps_of(Mask below, Mask right_above, Mask right_below) {
  return {(below.v & (2 - right_below.v)) | (~below.v & -right_above.v)};
}
CONVSCOPE_INLINE void store_taps(std::uint8_t* to, Mask below, Mask right_above, Mask right_below,
                                 int count) {
  store_taps(to, taps_of(below, right_above, right_below), count);
}
CONVSCOPE_INLINE void store_winners(std::uint8_t* to, Mask below, Mask right_above,
                                    Mask right_below, Mask passes) {
  const Words taps = taps_of(below, right_above, right_below).v;
  store_taps(to, {(taps & passes.v) | (4 & ~passes.v)}, kLanes);
}

}  // namespace four

#endif

// Stores the largest of four pixels (after ReLU if `relu`), and the index of that pixel. With
// `ordered`, no pixel is NaN, so fewer comparisons are needed.
CONVSCOPE_INLINE void store_largest(Wide a, Wide b, Wide c, Wide d, bool relu, bool ordered,
                                    float* y, std::uint8_t* winners) {
  const auto beats = [&](Wide p, Wide q) __attribute__((always_inline)) {
    return ordered ? greater(p, q) : either(greater(p, q), unordered(p, p));
  };
  const wide::Mask right_above = beats(b, a);
  const wide::Mask right_below = beats(d, c);
  const Wide above = ordered ? largest(a, b) : choose(right_above, a, b);
  const Wide under = ordered ? largest(c, d) : choose(right_below, c, d);
  const wide::Mask below = beats(under, above);
  Wide best = ordered ? largest(above, under) : choose(below, above, under);
  wide::Mask passes = wide::all_lanes();
  if (relu) {
    passes = passes_relu(best);
    best = keep(passes, best);
  }
  store(y, best);
  store_winners(winners, below, right_above, right_below, passes);
}

}  // namespace convscope::CONVSCOPE_ISA
