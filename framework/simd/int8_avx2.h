// SPDX-License-Identifier: Apache-2.0
// int8_avx2.h: the back end of int8_vector.h with 8 lanes; int8_avx512.h describes the operations.
#pragma once

#include "framework/simd/cpu_isa.h"
#include "framework/simd/simd.h"

#if defined(CONVSCOPE_ISA_IS_AVX2)

namespace convscope::CONVSCOPE_ISA {

struct Bytes {
  __m256i v;
};
CONVSCOPE_INLINE void store_three_bytes(std::uint8_t* p, Ints a) {
  const __m256i three = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
  const __m256i from = _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 3, 7);
  const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(a.v, three), from);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(bytes));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p + 16), _mm256_extracti128_si256(bytes, 1));
}
CONVSCOPE_INLINE Vec load_codes(const std::uint8_t* p) {
  return {_mm256_cvtepi32_ps(
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))))};
}
CONVSCOPE_INLINE Vec load_signed_codes(const std::int8_t* p) {
  return {_mm256_cvtepi32_ps(
      _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))))};
}
CONVSCOPE_INLINE Bytes high_halves(const Ints (&a)[4]) {
  const __m256i words01 = _mm256_blend_epi16(_mm256_srli_epi32(a[0].v, 16), a[1].v, 0xaa);
  const __m256i words23 = _mm256_blend_epi16(_mm256_srli_epi32(a[2].v, 16), a[3].v, 0xaa);
  const __m256i part = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15));
  const __m256i turn = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  const __m256i parts = _mm256_shuffle_epi8(_mm256_packus_epi16(words01, words23), part);
  return {_mm256_permutevar8x32_epi32(parts, turn)};
}
CONVSCOPE_INLINE Bytes less_down_to_zero(Bytes a, Bytes b) { return {_mm256_subs_epu8(a.v, b.v)}; }
CONVSCOPE_INLINE Bytes operator+(Bytes a, Bytes b) { return {_mm256_add_epi8(a.v, b.v)}; }
CONVSCOPE_INLINE Bytes set_bytes(int a) { return {_mm256_set1_epi8(static_cast<char>(a))}; }
CONVSCOPE_INLINE void store_bytes(std::uint8_t* p, std::int64_t step, Bytes a, int count) {
  std::uint64_t parts[4];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(parts), a.v);
  for (int i = 0; i < count; ++i) __builtin_memcpy(p + i * step, &parts[i], 8);
}
CONVSCOPE_INLINE Ints least_low_halves(Ints least, Ints a) {
  const __m256i low = _mm256_or_si256(a.v, _mm256_set1_epi32(-65536));
  return {_mm256_min_epu16(least.v, low)};
}
CONVSCOPE_INLINE unsigned lanes_up_to(Ints a, int bound) {
  const __m256i low = _mm256_and_si256(a.v, _mm256_set1_epi32(0xffff));
  const __m256i beyond = _mm256_cmpgt_epi32(low, _mm256_set1_epi32(bound));
  return static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(beyond))) ^ 0xff;
}
CONVSCOPE_INLINE bool any_beyond(Vec a, Vec bound) {
  const __m256 size = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v);
  return _mm256_movemask_ps(_mm256_cmp_ps(size, bound.v, _CMP_NLE_UQ)) != 0;
}

#if CONVSCOPE_ISA_VNNI
struct Quad {
  __m256i v;
};
struct WeightQuad {
  __m256i v;
};
CONVSCOPE_INLINE Quad broadcast_quad(const std::uint8_t* p) {
  return {_mm256_set1_epi32(four_bytes(p))};
}
CONVSCOPE_INLINE WeightQuad load_weights(const std::int8_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))};
}
CONVSCOPE_INLINE Ints dot(Ints sums, Quad x, WeightQuad w) {
  return {_mm256_dpbusd_avx_epi32(sums.v, x.v, w.v)};
}
// Hides from the compiler how `w` is computed.
CONVSCOPE_INLINE WeightQuad opaque(WeightQuad w) {
  asm("" : "+x"(w.v));
  return w;
}
#else
struct Quad {
  __m256i even, odd;
};
using WeightQuad = Quad;
CONVSCOPE_INLINE Quad spread(__m256i bytes) {
  return {_mm256_and_si256(bytes, _mm256_set1_epi16(255)), _mm256_srli_epi16(bytes, 8)};
}
CONVSCOPE_INLINE Quad broadcast_quad(const std::uint8_t* p) {
  return spread(_mm256_set1_epi32(four_bytes(p)));
}
CONVSCOPE_INLINE WeightQuad load_weights(const std::int8_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32))};
}
CONVSCOPE_INLINE Ints dot(Ints sums, Quad x, WeightQuad w) {
  const __m256i pairs = _mm256_add_epi32(_mm256_madd_epi16(x.even, w.even), sums.v);
  return {_mm256_add_epi32(_mm256_madd_epi16(x.odd, w.odd), pairs)};
}
CONVSCOPE_INLINE WeightQuad opaque(WeightQuad w) {
  asm("" : "+x"(w.even), "+x"(w.odd));
  return w;
}
#endif
CONVSCOPE_INLINE Quad load_quads(const std::uint8_t* p) {
  const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
#if CONVSCOPE_ISA_VNNI
  return {bytes};
#else
  return spread(bytes);
#endif
}
CONVSCOPE_INLINE WeightQuad broadcast_weights(const std::int8_t* p) {
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(p);
#if CONVSCOPE_ISA_VNNI
  return {_mm256_set1_epi32(four_bytes(bytes))};
#else
  return {_mm256_set1_epi32(four_bytes(bytes)), _mm256_set1_epi32(four_bytes(bytes + 4))};
#endif
}
CONVSCOPE_INLINE Quad quads_of_pixels(const std::uint8_t* p) {
  const auto pixel = [&](int j) {
    return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 16 * j));
  };
  const __m128i first = _mm_unpacklo_epi8(pixel(0), pixel(1));
  const __m128i second = _mm_unpacklo_epi8(pixel(2), pixel(3));
  const __m256i quads =
      _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_unpacklo_epi16(first, second)),
                              _mm_unpackhi_epi16(first, second), 1);
#if CONVSCOPE_ISA_VNNI
  return {quads};
#else
  return spread(quads);
#endif
}

}  // namespace convscope::CONVSCOPE_ISA

#endif
