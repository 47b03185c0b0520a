// SPDX-License-Identifier: Apache-2.0
// avx2.h: the back end of simd.h with 8 lanes; avx512.h describes the operations.
#pragma once

#include "framework/simd/simd_base.h"

#if defined(CONVSCOPE_ISA_IS_AVX2)

#include <immintrin.h>

namespace convscope::CONVSCOPE_ISA {

inline constexpr int kLanes = 8;
inline constexpr int kRegisters = 16;
inline constexpr bool kMasksAreFree = false;
struct Vec {
  __m256 v;
};
using Mask = __m256;
CONVSCOPE_INLINE Vec load(const float* p) { return {_mm256_loadu_ps(p)}; }
CONVSCOPE_INLINE void store(float* p, Vec a) { _mm256_storeu_ps(p, a.v); }
CONVSCOPE_INLINE Mask first_lanes(int count) {
  return _mm256_castsi256_ps(
      _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)));
}
CONVSCOPE_INLINE Vec load(const float* p, Mask lanes) {
  return {_mm256_maskload_ps(p, _mm256_castps_si256(lanes))};
}
CONVSCOPE_INLINE void store(float* p, Vec a, Mask lanes) {
  _mm256_maskstore_ps(p, _mm256_castps_si256(lanes), a.v);
}
CONVSCOPE_INLINE Vec load_first(const float* p, int count) { return load(p, first_lanes(count)); }
CONVSCOPE_INLINE void store_first(float* p, Vec a, int count) { store(p, a, first_lanes(count)); }
CONVSCOPE_INLINE Vec broadcast(float x) { return {_mm256_set1_ps(x)}; }
CONVSCOPE_INLINE Vec operator+(Vec a, Vec b) { return {_mm256_add_ps(a.v, b.v)}; }
CONVSCOPE_INLINE Vec operator-(Vec a, Vec b) { return {_mm256_sub_ps(a.v, b.v)}; }
CONVSCOPE_INLINE Vec operator*(Vec a, Vec b) { return {_mm256_mul_ps(a.v, b.v)}; }
CONVSCOPE_INLINE Vec operator/(Vec a, Vec b) { return {_mm256_div_ps(a.v, b.v)}; }
CONVSCOPE_INLINE Vec sqrt(Vec a) { return {_mm256_sqrt_ps(a.v)}; }
CONVSCOPE_INLINE Vec max(Vec a, Vec b) { return {_mm256_max_ps(a.v, b.v)}; }
CONVSCOPE_INLINE Vec min(Vec a, Vec b) { return {_mm256_min_ps(a.v, b.v)}; }
CONVSCOPE_INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
CONVSCOPE_INLINE Vec keep_where_positive(Vec a, Vec x) {
  return {_mm256_and_ps(a.v, _mm256_cmp_ps(x.v, _mm256_setzero_ps(), _CMP_GT_OQ))};
}
CONVSCOPE_INLINE Vec bounded_relu(Vec a, Vec most) {
  return {_mm256_min_ps(most.v,
                        _mm256_and_ps(a.v, _mm256_cmp_ps(a.v, _mm256_setzero_ps(), _CMP_NLE_UQ)))};
}
CONVSCOPE_INLINE Vec opaque(Vec a) {
  asm("" : "+x"(a.v));
  return a;
}
CONVSCOPE_INLINE float sum(Vec a) {
  const __m128 half = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  const __m128 pair = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
}

CONVSCOPE_INLINE Mask lanes_between(int begin, int end) {
  return _mm256_andnot_ps(first_lanes(begin), first_lanes(end));
}
CONVSCOPE_INLINE Mask greater(Vec a, Vec b) { return _mm256_cmp_ps(a.v, b.v, _CMP_GT_OQ); }
CONVSCOPE_INLINE Mask unordered(Vec a, Vec b) { return _mm256_cmp_ps(a.v, b.v, _CMP_UNORD_Q); }
CONVSCOPE_INLINE Mask passes_relu(Vec a) {
  return _mm256_cmp_ps(a.v, _mm256_setzero_ps(), _CMP_NLE_UQ);
}
CONVSCOPE_INLINE Mask either(Mask a, Mask b) { return _mm256_or_ps(a, b); }
CONVSCOPE_INLINE Mask all_lanes() { return _mm256_castsi256_ps(_mm256_set1_epi32(-1)); }
CONVSCOPE_INLINE bool any(Mask a) { return _mm256_movemask_ps(a) != 0; }
CONVSCOPE_INLINE Vec choose(Mask mask, Vec a, Vec b) { return {_mm256_blendv_ps(a.v, b.v, mask)}; }
CONVSCOPE_INLINE Vec keep(Mask mask, Vec a) { return {_mm256_and_ps(a.v, mask)}; }
CONVSCOPE_INLINE Vec largest(Vec a, Vec b) { return {_mm256_max_ps(b.v, a.v)}; }

CONVSCOPE_INLINE Vec even_lanes(Vec a, Vec b) {
  return {_mm256_castpd_ps(
      _mm256_permute4x64_pd(_mm256_castps_pd(_mm256_shuffle_ps(a.v, b.v, 0x88)), 0xd8))};
}
CONVSCOPE_INLINE Vec odd_lanes(Vec a, Vec b) {
  return {_mm256_castpd_ps(
      _mm256_permute4x64_pd(_mm256_castps_pd(_mm256_shuffle_ps(a.v, b.v, 0xdd)), 0xd8))};
}
CONVSCOPE_INLINE Vec weave_low(Vec a, Vec b) {
  return {_mm256_permute2f128_ps(_mm256_unpacklo_ps(a.v, b.v), _mm256_unpackhi_ps(a.v, b.v), 0x20)};
}
CONVSCOPE_INLINE Vec weave_high(Vec a, Vec b) {
  return {_mm256_permute2f128_ps(_mm256_unpacklo_ps(a.v, b.v), _mm256_unpackhi_ps(a.v, b.v), 0x31)};
}

struct Ints {
  __m256i v;
};
CONVSCOPE_INLINE Ints load_ints(const std::int32_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))};
}
CONVSCOPE_INLINE void store_ints(std::int32_t* p, Ints a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.v);
}
CONVSCOPE_INLINE Ints set_ints(std::int32_t a) { return {_mm256_set1_epi32(a)}; }
CONVSCOPE_INLINE Ints larger(Ints a, Ints b) { return {_mm256_max_epi32(a.v, b.v)}; }
CONVSCOPE_INLINE Ints smaller(Ints a, Ints b) { return {_mm256_min_epi32(a.v, b.v)}; }
CONVSCOPE_INLINE Ints operator^(Ints a, Ints b) { return {_mm256_xor_si256(a.v, b.v)}; }
CONVSCOPE_INLINE Ints operator+(Ints a, Ints b) { return {_mm256_add_epi32(a.v, b.v)}; }
CONVSCOPE_INLINE Ints operator&(Ints a, Ints b) { return {_mm256_and_si256(a.v, b.v)}; }
CONVSCOPE_INLINE Ints operator|(Ints a, Ints b) { return {_mm256_or_si256(a.v, b.v)}; }
CONVSCOPE_INLINE Ints shift_left(Ints a, int bits) { return {_mm256_slli_epi32(a.v, bits)}; }
CONVSCOPE_INLINE Ints even_lanes(Ints a, Ints b) {
  const __m256 mixed = _mm256_shuffle_ps(_mm256_castsi256_ps(a.v), _mm256_castsi256_ps(b.v), 0x88);
  return {_mm256_permute4x64_epi64(_mm256_castps_si256(mixed), 0xd8)};
}
CONVSCOPE_INLINE Ints odd_lanes(Ints a, Ints b) {
  const __m256 mixed = _mm256_shuffle_ps(_mm256_castsi256_ps(a.v), _mm256_castsi256_ps(b.v), 0xdd);
  return {_mm256_permute4x64_epi64(_mm256_castps_si256(mixed), 0xd8)};
}

CONVSCOPE_INLINE Vec to_floats(Ints a) { return {_mm256_cvtepi32_ps(a.v)}; }
CONVSCOPE_INLINE Ints round_to_ints(Vec a) { return {_mm256_cvtps_epi32(a.v)}; }

}  // namespace convscope::CONVSCOPE_ISA

#endif
