// SPDX-License-Identifier: Apache-2.0
// int8_avx512.h: the back end of int8_vector.h with 16 lanes.
#pragma once

#include "framework/simd/cpu_isa.h"
#include "framework/simd/simd.h"

#if defined(CONVSCOPE_ISA_IS_AVX512)

namespace convscope::CONVSCOPE_ISA {

struct Bytes {  // of four vectors of Ints
  __m512i v;
};
// Stores the three low bytes of each lane without gaps.
CONVSCOPE_INLINE void store_three_bytes(std::uint8_t* p, Ints a) {
  const __m512i three =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
  const __m512i from = _mm512_setr_epi32(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 3, 7, 11, 15);
  const __m512i bytes = _mm512_permutexvar_epi32(from, _mm512_shuffle_epi8(a.v, three));
  _mm512_mask_storeu_epi32(p, 0x0fff, bytes);
}
CONVSCOPE_INLINE Vec load_codes(const std::uint8_t* p) {
  return {_mm512_cvtepi32_ps(
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}
CONVSCOPE_INLINE Vec load_signed_codes(const std::int8_t* p) {
  return {_mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}
// Returns the upper 16 bits of the lanes of four vectors as bytes, clamped to 0..255.
CONVSCOPE_INLINE Bytes high_halves(const Ints (&a)[4]) {
  // Interleaves the 16-bit words of two vectors, a0 b0 a1 b1 ..., as x | (y & high).
  const __m512i high = _mm512_set1_epi32(-65536);
  const __m512i words01 =
      _mm512_ternarylogic_epi32(_mm512_srli_epi32(a[0].v, 16), a[1].v, high, 0xf8);
  const __m512i words23 =
      _mm512_ternarylogic_epi32(_mm512_srli_epi32(a[2].v, 16), a[3].v, high, 0xf8);
  // In each group of 4 lanes, the bytes a0 b0 a1 b1 a2 b2 a3 b3 c0 d0 ... d3 become a0 a1 a2 a3 b0
  // ... d3. Then the matrix [group, vector] is transposed.
  const __m512i part =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15));
  const __m512i turn = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i parts = _mm512_shuffle_epi8(_mm512_packus_epi16(words01, words23), part);
  return {_mm512_permutexvar_epi32(turn, parts)};
}
CONVSCOPE_INLINE Bytes less_down_to_zero(Bytes a, Bytes b) {  // max(a - b, 0), 0..255
  return {_mm512_subs_epu8(a.v, b.v)};
}
CONVSCOPE_INLINE Bytes operator+(Bytes a, Bytes b) { return {_mm512_add_epi8(a.v, b.v)}; }
CONVSCOPE_INLINE Bytes set_bytes(int a) { return {_mm512_set1_epi8(static_cast<char>(a))}; }
// Stores the bytes of the first `count` of four vectors; the vectors are stored `step` bytes apart.
CONVSCOPE_INLINE void store_bytes(std::uint8_t* p, std::int64_t step, Bytes a, int count) {
  if (__builtin_expect(step == kLanes, 1)) {
    if (count == 4) return _mm512_storeu_si512(p, a.v);
    if (count == 2) {
      return _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_castsi512_si256(a.v));
    }
    return _mm512_mask_storeu_epi8(p, (std::uint64_t{1} << (16 * count)) - 1, a.v);
  }
  __m128i parts[4];
  _mm512_storeu_si512(parts, a.v);
  for (int i = 0; i < count; ++i)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + i * step), parts[i]);
}
// Returns, in the low 16 bits of each lane, the unsigned minimum of the low 16 bits of `least` and
// `a`. A search for a minimum begins with least = set_ints(-1).
CONVSCOPE_INLINE Ints least_low_halves(Ints least, Ints a) {
  return {_mm512_mask_min_epu16(least.v, 0x55555555, least.v, a.v)};
}
// Returns one bit per lane. The bit is set if the low half of the lane is at most `bound`.
CONVSCOPE_INLINE unsigned lanes_up_to(Ints a, int bound) {
  const __m512i low = _mm512_and_si512(a.v, _mm512_set1_epi32(0xffff));
  return _mm512_cmple_epi32_mask(low, _mm512_set1_epi32(bound));
}
CONVSCOPE_INLINE bool any_beyond(Vec a, Vec bound) {  // |a| > bound in some lane, or NaN
  return _mm512_cmp_ps_mask(_mm512_abs_ps(a.v), bound.v, _CMP_NLE_UQ) != 0;
}

#if CONVSCOPE_ISA_VNNI
struct Quad {
  __m512i v;
};
struct WeightQuad {
  __m512i v;
};
CONVSCOPE_INLINE Quad broadcast_quad(const std::uint8_t* p) {
  return {_mm512_set1_epi32(four_bytes(p))};
}
CONVSCOPE_INLINE WeightQuad load_weights(const std::int8_t* p) { return {_mm512_loadu_si512(p)}; }
CONVSCOPE_INLINE Ints dot(Ints sums, Quad x, WeightQuad w) {
  return {_mm512_dpbusd_epi32(sums.v, x.v, w.v)};
}
// Hides from the compiler how `w` is computed.
CONVSCOPE_INLINE WeightQuad opaque(WeightQuad w) {
  asm("" : "+v"(w.v));
  return w;
}
#else
struct Quad {
  __m512i even, odd;
};
using WeightQuad = Quad;
CONVSCOPE_INLINE Quad spread(__m512i bytes) {
  return {_mm512_and_si512(bytes, _mm512_set1_epi16(255)), _mm512_srli_epi16(bytes, 8)};
}
CONVSCOPE_INLINE Quad broadcast_quad(const std::uint8_t* p) {
  return spread(_mm512_set1_epi32(four_bytes(p)));
}
CONVSCOPE_INLINE WeightQuad load_weights(const std::int8_t* p) {
  return {_mm512_loadu_si512(p), _mm512_loadu_si512(p + 64)};
}
CONVSCOPE_INLINE Ints dot(Ints sums, Quad x, WeightQuad w) {
  const __m512i pairs = _mm512_add_epi32(_mm512_madd_epi16(x.even, w.even), sums.v);
  return {_mm512_add_epi32(_mm512_madd_epi16(x.odd, w.odd), pairs)};
}
CONVSCOPE_INLINE WeightQuad opaque(WeightQuad w) {
  asm("" : "+v"(w.even), "+v"(w.odd));
  return w;
}
#endif
CONVSCOPE_INLINE Quad load_quads(const std::uint8_t* p) {
#if CONVSCOPE_ISA_VNNI
  return {_mm512_loadu_si512(p)};
#else
  return spread(_mm512_loadu_si512(p));
#endif
}
CONVSCOPE_INLINE WeightQuad broadcast_weights(const std::int8_t* p) {
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(p);
#if CONVSCOPE_ISA_VNNI
  return {_mm512_set1_epi32(four_bytes(bytes))};
#else
  return {_mm512_set1_epi32(four_bytes(bytes)), _mm512_set1_epi32(four_bytes(bytes + 4))};
#endif
}
// Loads the bytes of channel c of four pixels into each lane c. Pixels are 16 bytes apart.
CONVSCOPE_INLINE Quad quads_of_pixels(const std::uint8_t* p) {
  const __m512i turn = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i four_channels = _mm512_permutexvar_epi32(turn, _mm512_loadu_si512(p));
  const __m512i weave =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  const __m512i quads = _mm512_shuffle_epi8(four_channels, weave);
#if CONVSCOPE_ISA_VNNI
  return {quads};
#else
  return spread(quads);
#endif
}

}  // namespace convscope::CONVSCOPE_ISA

#endif
