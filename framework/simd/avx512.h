// SPDX-License-Identifier: Apache-2.0
// avx512.h: the back end of simd.h with 16 lanes.
#pragma once

#include "framework/simd/simd_base.h"

#if defined(CONVSCOPE_ISA_IS_AVX512)

#include <immintrin.h>

// Masks have registers, so selections by many masks are cheap. A mask can also move its lanes to
// the front (compress).
#define CONVSCOPE_HAS_MASKS 1

namespace convscope::CONVSCOPE_ISA {

inline constexpr int kLanes = 16;
inline constexpr int kRegisters = 32;
inline constexpr bool kMasksAreFree = true;  // a masked load costs no more than a plain one
struct Vec {
  __m512 v;
};
using Mask = __mmask16;
CONVSCOPE_INLINE Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
CONVSCOPE_INLINE void store(float* p, Vec a) { _mm512_storeu_ps(p, a.v); }
// Selects the first `count` lanes (0..kLanes). Loads set the other lanes to 0; stores skip them.
CONVSCOPE_INLINE Mask first_lanes(int count) { return static_cast<Mask>((1u << count) - 1u); }
CONVSCOPE_INLINE Vec load_first(const float* p, int count) {
  return {_mm512_maskz_loadu_ps(first_lanes(count), p)};
}
CONVSCOPE_INLINE void store_first(float* p, Vec a, int count) {
  _mm512_mask_storeu_ps(p, first_lanes(count), a.v);
}
CONVSCOPE_INLINE Vec broadcast(float x) { return {_mm512_set1_ps(x)}; }
CONVSCOPE_INLINE Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
CONVSCOPE_INLINE Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
CONVSCOPE_INLINE Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
CONVSCOPE_INLINE Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
CONVSCOPE_INLINE Vec sqrt(Vec a) { return {_mm512_sqrt_ps(a.v)}; }
CONVSCOPE_INLINE Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
CONVSCOPE_INLINE Vec min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
// Returns a * b + c, rounded once.
CONVSCOPE_INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
// Returns where(x > 0, a, 0) by lane.
CONVSCOPE_INLINE Vec keep_where_positive(Vec a, Vec x) {
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x.v, _mm512_setzero_ps(), _CMP_GT_OQ), a.v)};
}
// Returns ReLU with an upper bound, which may be infinite: NaN stays NaN, -0 becomes 0.
CONVSCOPE_INLINE Vec bounded_relu(Vec a, Vec most) {
  return {
      _mm512_maskz_min_ps(_mm512_cmp_ps_mask(a.v, _mm512_setzero_ps(), _CMP_NLE_UQ), most.v, a.v)};
}
// Hides from the compiler how `a` is computed: it neither loads `a` again for each use nor fuses a
// product with a following sum.
CONVSCOPE_INLINE Vec opaque(Vec a) {
  asm("" : "+v"(a.v));
  return a;
}
CONVSCOPE_INLINE float sum(Vec a) {
  const __m256 eight =  // _maskz_, because GCC 12 warns about the other functions
      _mm256_add_ps(_mm512_maskz_extractf32x8_ps(0xff, a.v, 0),
                    _mm512_maskz_extractf32x8_ps(0xff, a.v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 pair = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
}

// Selects the lanes [begin, end).
CONVSCOPE_INLINE Mask lanes_between(int begin, int end) {
  return static_cast<Mask>(first_lanes(end) & ~static_cast<unsigned>(first_lanes(begin)));
}
CONVSCOPE_INLINE Vec load(const float* p, Mask lanes) { return {_mm512_maskz_loadu_ps(lanes, p)}; }
CONVSCOPE_INLINE void store(float* p, Vec a, Mask lanes) { _mm512_mask_storeu_ps(p, lanes, a.v); }
CONVSCOPE_INLINE Mask greater(Vec a, Vec b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ); }
// Returns the lanes where a or b is NaN.
CONVSCOPE_INLINE Mask unordered(Vec a, Vec b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_UNORD_Q); }
// Returns the lanes that are not <= 0: positive, or NaN.
CONVSCOPE_INLINE Mask passes_relu(Vec a) {
  return _mm512_cmp_ps_mask(a.v, _mm512_setzero_ps(), _CMP_NLE_UQ);
}
CONVSCOPE_INLINE Mask either(Mask a, Mask b) { return static_cast<Mask>(a | b); }
CONVSCOPE_INLINE Mask both(Mask a, Mask b) { return static_cast<Mask>(a & b); }
CONVSCOPE_INLINE Mask equal(Mask a, Mask b) { return static_cast<Mask>(~(a ^ b)); }
CONVSCOPE_INLINE Mask all_lanes() { return 0xffff; }
CONVSCOPE_INLINE bool any(Mask a) { return a != 0; }
// Returns mask ? b : a.
CONVSCOPE_INLINE Vec choose(Mask mask, Vec a, Vec b) {
  return {_mm512_mask_blend_ps(mask, a.v, b.v)};
}
// Returns mask ? a : 0.
CONVSCOPE_INLINE Vec keep(Mask mask, Vec a) { return {_mm512_maskz_mov_ps(mask, a.v)}; }
// Returns b > a ? b : a.
CONVSCOPE_INLINE Vec largest(Vec a, Vec b) { return {_mm512_maskz_max_ps(0xffff, b.v, a.v)}; }

// Returns the even (odd) elements of a followed by b; with a mask, the other lanes are 0.
CONVSCOPE_INLINE Vec even_lanes(Vec a, Vec b, Mask m = 0xffff) {
  const __m512i at = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  return {_mm512_maskz_permutex2var_ps(m, a.v, at, b.v)};
}
CONVSCOPE_INLINE Vec odd_lanes(Vec a, Vec b, Mask m = 0xffff) {
  const __m512i at = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  return {_mm512_maskz_permutex2var_ps(m, a.v, at, b.v)};
}
// Returns the first (second) half of a[0] b[0] a[1] b[1] ...
CONVSCOPE_INLINE Vec weave_low(Vec a, Vec b) {
  const __m512i at = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  return {_mm512_permutex2var_ps(a.v, at, b.v)};
}
CONVSCOPE_INLINE Vec weave_high(Vec a, Vec b) {
  const __m512i at =
      _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  return {_mm512_permutex2var_ps(a.v, at, b.v)};
}

struct Ints {
  __m512i v;
};
CONVSCOPE_INLINE Ints load_ints(const std::int32_t* p) { return {_mm512_loadu_si512(p)}; }
CONVSCOPE_INLINE void store_ints(std::int32_t* p, Ints a) { _mm512_storeu_si512(p, a.v); }
CONVSCOPE_INLINE Ints set_ints(std::int32_t a) { return {_mm512_set1_epi32(a)}; }
CONVSCOPE_INLINE Ints larger(Ints a, Ints b) { return {_mm512_max_epi32(a.v, b.v)}; }
CONVSCOPE_INLINE Ints smaller(Ints a, Ints b) { return {_mm512_min_epi32(a.v, b.v)}; }
CONVSCOPE_INLINE Ints operator^(Ints a, Ints b) { return {_mm512_xor_si512(a.v, b.v)}; }
CONVSCOPE_INLINE Ints operator+(Ints a, Ints b) { return {_mm512_add_epi32(a.v, b.v)}; }
CONVSCOPE_INLINE Ints operator&(Ints a, Ints b) { return {_mm512_and_si512(a.v, b.v)}; }
CONVSCOPE_INLINE Ints operator|(Ints a, Ints b) { return {_mm512_or_si512(a.v, b.v)}; }
CONVSCOPE_INLINE Ints shift_left(Ints a, int bits) {
  return {_mm512_slli_epi32(a.v, static_cast<unsigned>(bits))};
}
// Returns the even (or odd) lanes of a, followed by those of b.
CONVSCOPE_INLINE Ints even_lanes(Ints a, Ints b) {
  const __m512i from = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  return {_mm512_permutex2var_epi32(a.v, from, b.v)};
}
CONVSCOPE_INLINE Ints odd_lanes(Ints a, Ints b) {
  const __m512i from = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  return {_mm512_permutex2var_epi32(a.v, from, b.v)};
}

CONVSCOPE_INLINE Vec to_floats(Ints a) { return {_mm512_cvtepi32_ps(a.v)}; }
// Converts to integers, rounding half to even. Values out of range become the lowest integer.
CONVSCOPE_INLINE Ints round_to_ints(Vec a) { return {_mm512_cvtps_epi32(a.v)}; }

// Moves the lanes of a mask to the front.
CONVSCOPE_INLINE Ints compress(Mask lanes, Ints a) {
  return {_mm512_maskz_compress_epi32(lanes, a.v)};
}
CONVSCOPE_INLINE int count_lanes(Mask lanes) { return __builtin_popcount(lanes); }
CONVSCOPE_INLINE Ints load_first(const std::uint32_t* p, int count) {
  return {_mm512_maskz_loadu_epi32(first_lanes(count), p)};
}
CONVSCOPE_INLINE Ints lane_numbers() {
  return {_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)};
}
CONVSCOPE_INLINE Ints shift_right(Ints a, int bits) {  // fills with 0
  return {_mm512_srl_epi32(a.v, _mm_cvtsi32_si128(bits))};
}
CONVSCOPE_INLINE Mask any_bit(Ints a, Ints b) { return _mm512_test_epi32_mask(a.v, b.v); }
// Returns a + b in the lanes of the mask, otherwise a.
CONVSCOPE_INLINE Ints add_where(Mask lanes, Ints a, Ints b) {
  return {_mm512_mask_add_epi32(a.v, lanes, a.v, b.v)};
}

}  // namespace convscope::CONVSCOPE_ISA

#endif
