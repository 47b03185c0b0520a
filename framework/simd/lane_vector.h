// SPDX-License-Identifier: Apache-2.0
// lane_vector.h: the vectors of batch_lanes_simd.cpp. They extend the vectors of simd.h by
// comparisons and interleaved pixels. The scalar version has four lanes instead of one.
//
// A vector of kWide lanes holds one pixel of kWide samples, or Ratio pixels of kWide / Ratio
// samples.
#pragma once

#include <cstdint>

#include "framework/simd/simd.h"

namespace convscope::CONVSCOPE_ISA {

#if defined(CONVSCOPE_ISA_IS_AVX512)

inline constexpr int kWide = 16;
using Wide = Vec;
using WideMask = __mmask16;
CONVSCOPE_INLINE Wide load_wide(const float* p) { return load(p); }
CONVSCOPE_INLINE Wide load_wide(const float* p, int count) { return load_first(p, count); }
CONVSCOPE_INLINE void store_wide(float* p, Wide a) { store(p, a); }
CONVSCOPE_INLINE void store_wide(float* p, Wide a, int count) { store_first(p, a, count); }
CONVSCOPE_INLINE Wide set_wide(float a) { return broadcast(a); }
CONVSCOPE_INLINE WideMask greater(Wide a, Wide b) {
  return _mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ);
}
CONVSCOPE_INLINE WideMask is_nan(Wide a) { return _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q); }
CONVSCOPE_INLINE WideMask either_nan(Wide a, Wide b) {
  return _mm512_cmp_ps_mask(a.v, b.v, _CMP_UNORD_Q);
}
// Returns b > a ? b : a.
CONVSCOPE_INLINE Wide largest(Wide a, Wide b) { return {_mm512_maskz_max_ps(0xffff, b.v, a.v)}; }
CONVSCOPE_INLINE bool any_lane(WideMask a) { return a != 0; }
CONVSCOPE_INLINE WideMask or_mask(WideMask a, WideMask b) { return static_cast<WideMask>(a | b); }
CONVSCOPE_INLINE WideMask all_lanes() { return 0xffff; }
// Returns mask ? b : a.
CONVSCOPE_INLINE Wide choose(WideMask mask, Wide a, Wide b) {
  return {_mm512_mask_blend_ps(mask, a.v, b.v)};
}
// Returns a mask of the lanes that are not <= 0: positive, or NaN.
CONVSCOPE_INLINE WideMask passes_relu(Wide a) {
  return _mm512_cmp_ps_mask(a.v, _mm512_setzero_ps(), _CMP_NLE_UQ);
}
CONVSCOPE_INLINE Wide keep(WideMask mask, Wide a) { return {_mm512_maskz_mov_ps(mask, a.v)}; }
// Stores, for each lane, the index of the largest pixel of a 2x2 window: 0 and 1 for the upper row,
// 2 and 3 for the lower row, from left to right. `below` says that the pixel is in the lower row.
// right_above and right_below say whether the larger pixel of that row is the right one. If
// `passes` is not set, stores 4.
CONVSCOPE_INLINE void store_winners(std::uint8_t* to, WideMask below, WideMask right_above,
                                    WideMask right_below, WideMask passes) {
  const __m128i above = _mm_maskz_set1_epi8(right_above, 1);
  const __m128i under = _mm_mask_blend_epi8(right_below, _mm_set1_epi8(2), _mm_set1_epi8(3));
  const __m128i tap = _mm_mask_blend_epi8(below, above, under);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm_mask_blend_epi8(passes, _mm_set1_epi8(4), tap));
}
struct Winners {
  __m128i v;
};
CONVSCOPE_INLINE Winners load_winners(const std::uint8_t* p) {
  return {_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))};
}
CONVSCOPE_INLINE WideMask won(Winners winners, int tap) {
  return _mm_cmpeq_epi8_mask(winners.v, _mm_set1_epi8(static_cast<char>(tap)));
}
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
CONVSCOPE_INLINE float total(Wide a) { return sum(a); }

#elif defined(CONVSCOPE_ISA_IS_AVX2)

inline constexpr int kWide = 8;
using Wide = Vec;
using WideMask = __m256;
CONVSCOPE_INLINE Wide load_wide(const float* p) { return load(p); }
CONVSCOPE_INLINE Wide load_wide(const float* p, int count) { return load_first(p, count); }
CONVSCOPE_INLINE void store_wide(float* p, Wide a) { store(p, a); }
CONVSCOPE_INLINE void store_wide(float* p, Wide a, int count) { store_first(p, a, count); }
CONVSCOPE_INLINE Wide set_wide(float a) { return broadcast(a); }
CONVSCOPE_INLINE WideMask greater(Wide a, Wide b) { return _mm256_cmp_ps(a.v, b.v, _CMP_GT_OQ); }
CONVSCOPE_INLINE WideMask is_nan(Wide a) { return _mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q); }
CONVSCOPE_INLINE WideMask either_nan(Wide a, Wide b) {
  return _mm256_cmp_ps(a.v, b.v, _CMP_UNORD_Q);
}
CONVSCOPE_INLINE Wide largest(Wide a, Wide b) { return {_mm256_max_ps(b.v, a.v)}; }
CONVSCOPE_INLINE bool any_lane(WideMask a) { return _mm256_movemask_ps(a) != 0; }
CONVSCOPE_INLINE WideMask or_mask(WideMask a, WideMask b) { return _mm256_or_ps(a, b); }
CONVSCOPE_INLINE WideMask all_lanes() { return _mm256_castsi256_ps(_mm256_set1_epi32(-1)); }
CONVSCOPE_INLINE Wide choose(WideMask mask, Wide a, Wide b) {
  return {_mm256_blendv_ps(a.v, b.v, mask)};
}
CONVSCOPE_INLINE WideMask passes_relu(Wide a) {
  return _mm256_cmp_ps(a.v, _mm256_setzero_ps(), _CMP_NLE_UQ);
}
CONVSCOPE_INLINE Wide keep(WideMask mask, Wide a) { return {_mm256_and_ps(a.v, mask)}; }
CONVSCOPE_INLINE void store_winners(std::uint8_t* to, WideMask below, WideMask right_above,
                                    WideMask right_below, WideMask passes) {
  const __m256i right = _mm256_castps_si256(_mm256_blendv_ps(right_above, right_below, below));
  const __m256i tap =
      _mm256_or_si256(_mm256_and_si256(_mm256_castps_si256(below), _mm256_set1_epi32(2)),
                      _mm256_and_si256(right, _mm256_set1_epi32(1)));
  const __m256i winner = _mm256_castps_si256(_mm256_blendv_ps(
      _mm256_castsi256_ps(_mm256_set1_epi32(4)), _mm256_castsi256_ps(tap), passes));
  const __m128i words =
      _mm_packs_epi32(_mm256_castsi256_si128(winner), _mm256_extracti128_si256(winner, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packus_epi16(words, words));
}
struct Winners {
  __m256i v;
};
CONVSCOPE_INLINE Winners load_winners(const std::uint8_t* p) {
  return {_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)))};
}
CONVSCOPE_INLINE WideMask won(Winners winners, int tap) {
  return _mm256_castsi256_ps(_mm256_cmpeq_epi32(winners.v, _mm256_set1_epi32(tap)));
}
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
  return even_pixels<Ratio>(even, odd);  // two pixels: both halves are exchanged
}
template <int Ratio>
CONVSCOPE_INLINE Wide weave_second(Wide even, Wide odd) {
  return odd_pixels<Ratio>(even, odd);
}
CONVSCOPE_INLINE float total(Wide a) { return sum(a); }

#else  // four lanes (every x86-64 has them), in plain C++

inline constexpr int kWide = 4;
using FourFloats = float __attribute__((vector_size(16)));
using FourInts = int __attribute__((vector_size(16)));
struct Wide {
  FourFloats v;
};
using WideMask = FourInts;
CONVSCOPE_INLINE Wide load_wide(const float* p) {
  Wide a;
  __builtin_memcpy(&a.v, p, sizeof(a.v));
  return a;
}
CONVSCOPE_INLINE Wide load_wide(const float* p, int count) {
  Wide a{};
  for (int i = 0; i < count; ++i) a.v[i] = p[i];
  return a;
}
CONVSCOPE_INLINE void store_wide(float* p, Wide a) { __builtin_memcpy(p, &a.v, sizeof(a.v)); }
CONVSCOPE_INLINE void store_wide(float* p, Wide a, int count) {
  for (int i = 0; i < count; ++i) p[i] = a.v[i];
}
CONVSCOPE_INLINE Wide set_wide(float a) { return {FourFloats{a, a, a, a}}; }
CONVSCOPE_INLINE Wide operator+(Wide a, Wide b) { return {a.v + b.v}; }
CONVSCOPE_INLINE Wide fma(Wide a, Wide b, Wide c) { return {a.v * b.v + c.v}; }
CONVSCOPE_INLINE WideMask greater(Wide a, Wide b) { return a.v > b.v; }
CONVSCOPE_INLINE WideMask is_nan(Wide a) { return a.v != a.v; }
CONVSCOPE_INLINE WideMask or_mask(WideMask a, WideMask b) { return a | b; }
CONVSCOPE_INLINE WideMask all_lanes() { return FourInts{-1, -1, -1, -1}; }
CONVSCOPE_INLINE Wide keep(WideMask mask, Wide a) {
  FourInts bits;
  __builtin_memcpy(&bits, &a.v, sizeof(bits));
  bits &= mask;
  __builtin_memcpy(&a.v, &bits, sizeof(bits));
  return a;
}
CONVSCOPE_INLINE Wide choose(WideMask mask, Wide a, Wide b) {
  FourInts p, q;
  __builtin_memcpy(&p, &a.v, sizeof(p));
  __builtin_memcpy(&q, &b.v, sizeof(q));
  p = (p & ~mask) | (q & mask);
  __builtin_memcpy(&a.v, &p, sizeof(p));
  return a;
}
CONVSCOPE_INLINE WideMask either_nan(Wide a, Wide b) { return (a.v != a.v) | (b.v != b.v); }
CONVSCOPE_INLINE Wide largest(Wide a, Wide b) { return choose(greater(b, a), a, b); }
CONVSCOPE_INLINE bool any_lane(WideMask a) { return (a[0] | a[1] | a[2] | a[3]) != 0; }
CONVSCOPE_INLINE WideMask passes_relu(Wide a) { return ~(a.v <= FourFloats{}); }
CONVSCOPE_INLINE void store_winners(std::uint8_t* to, WideMask below, WideMask right_above,
                                    WideMask right_below, WideMask passes) {
  const FourInts tap = (below & (2 - right_below)) | (~below & -right_above);
  const FourInts winner = (tap & passes) | (4 & ~passes);
  for (int i = 0; i < kWide; ++i) to[i] = static_cast<std::uint8_t>(winner[i]);
}
struct Winners {
  FourInts v;
};
CONVSCOPE_INLINE Winners load_winners(const std::uint8_t* p) {
  return {FourInts{p[0], p[1], p[2], p[3]}};
}
CONVSCOPE_INLINE WideMask won(Winners winners, int tap) { return winners.v == tap; }
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
CONVSCOPE_INLINE float total(Wide a) { return (a.v[0] + a.v[1]) + (a.v[2] + a.v[3]); }

#endif

// Keeps a loaded value in a register: GCC would load it again for each use.
CONVSCOPE_INLINE void keep_in_register(Wide& a) {
#if defined(CONVSCOPE_ISA_IS_AVX512)
  __asm__("" : "+v"(a.v));
#elif defined(CONVSCOPE_ISA_IS_AVX2)
  __asm__("" : "+x"(a.v));
#else
  (void)a;
#endif
}

CONVSCOPE_INLINE Wide no_wide() { return set_wide(0.0f); }
CONVSCOPE_INLINE Wide rectified(Wide a) { return keep(passes_relu(a), a); }
// Returns a mask of the lanes where b is larger than a, or b is NaN.
CONVSCOPE_INLINE WideMask beats(Wide b, Wide a) { return or_mask(greater(b, a), is_nan(b)); }

// Stores the largest of four pixels (after ReLU if `relu`), and the index of that pixel. With
// `ordered`, no pixel is NaN, so fewer comparisons are needed.
CONVSCOPE_INLINE void store_largest(Wide a, Wide b, Wide c, Wide d, bool relu, bool ordered,
                                    float* y, std::uint8_t* winners) {
  const WideMask right_above = ordered ? greater(b, a) : beats(b, a);
  const WideMask right_below = ordered ? greater(d, c) : beats(d, c);
  const Wide above = ordered ? largest(a, b) : choose(right_above, a, b);
  const Wide under = ordered ? largest(c, d) : choose(right_below, c, d);
  const WideMask below = ordered ? greater(under, above) : beats(under, above);
  Wide best = ordered ? largest(above, under) : choose(below, above, under);
  WideMask passes = all_lanes();
  if (relu) {
    passes = passes_relu(best);
    best = keep(passes, best);
  }
  store_wide(y, best);
  store_winners(winners, below, right_above, right_below, passes);
}

}  // namespace convscope::CONVSCOPE_ISA
