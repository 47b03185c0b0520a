// SPDX-License-Identifier: Apache-2.0
// row_vector.h: vectors of adjacent pixels of one image row, for depthwise_strips.h. It has loads
// with zeros beyond the borders, the selection of every second pixel, and the interleaving of two
// vectors.
//
// A lane type L has L::kCount lanes, and all lane types have the same functions. WidePixels is
// simd.h's vector. AVX-512 also has a lane type with 8 lanes, because an image of 7 columns would
// use less than half of 16 lanes. The shift through registers is for instruction sets whose masks
// are free.
#pragma once

#include <cstdint>

#include "framework/simd/simd.h"

namespace convscope::CONVSCOPE_ISA {

struct WidePixels {
  using V = decltype(Vec::v);
  using Mask = CONVSCOPE_ISA::Mask;
  static constexpr int kCount = kLanes;
  CONVSCOPE_INLINE static V zero() { return CONVSCOPE_ISA::zero().v; }
  CONVSCOPE_INLINE static V set(float a) { return broadcast(a).v; }
  CONVSCOPE_INLINE static V add(V a, V b) { return (Vec{a} + Vec{b}).v; }
  CONVSCOPE_INLINE static V fma(V a, V b, V c) {
    return CONVSCOPE_ISA::fma(Vec{a}, Vec{b}, Vec{c}).v;
  }
  CONVSCOPE_INLINE static V load(const float* p) { return CONVSCOPE_ISA::load(p).v; }
  CONVSCOPE_INLINE static V load(const float* p, Mask m) { return CONVSCOPE_ISA::load(p, m).v; }
  CONVSCOPE_INLINE static void store(float* p, V a) { CONVSCOPE_ISA::store(p, Vec{a}); }
  CONVSCOPE_INLINE static void store(float* p, V a, Mask m) { CONVSCOPE_ISA::store(p, Vec{a}, m); }
  CONVSCOPE_INLINE static Mask lanes(int begin, int end) { return lanes_between(begin, end); }
  // Takes the masks of even_lanes() in avx512.h, too.
  template <class... M>
  CONVSCOPE_INLINE static V even(V a, V b, M... m) {
    return even_lanes(Vec{a}, Vec{b}, m...).v;
  }
  template <class... M>
  CONVSCOPE_INLINE static V odd(V a, V b, M... m) {
    return odd_lanes(Vec{a}, Vec{b}, m...).v;
  }
  CONVSCOPE_INLINE static V weave_low(V a, V b) {
    return CONVSCOPE_ISA::weave_low(Vec{a}, Vec{b}).v;
  }
  CONVSCOPE_INLINE static V weave_high(V a, V b) {
    return CONVSCOPE_ISA::weave_high(Vec{a}, Vec{b}).v;
  }
  CONVSCOPE_INLINE static float sum(V a) { return CONVSCOPE_ISA::sum(Vec{a}); }
#if defined(CONVSCOPE_ISA_IS_AVX512)
  // Returns lanes i + kCount + K of concat(before, here, after), with -kCount < K < kCount. Lanes
  // that are not set in m are 0.
  template <int K>
  CONVSCOPE_INLINE static V shift(V before, V here, V after, Mask m) {
    if constexpr (K < 0) {
      return _mm512_castsi512_ps(_mm512_maskz_alignr_epi32(
          m, _mm512_castps_si512(here), _mm512_castps_si512(before), kCount + K));
    } else if constexpr (K > 0) {
      return _mm512_castsi512_ps(
          _mm512_maskz_alignr_epi32(m, _mm512_castps_si512(after), _mm512_castps_si512(here), K));
    } else {
      return here;
    }
  }
#endif
};

#if defined(CONVSCOPE_ISA_IS_AVX512)

struct EightPixels {
  using V = __m256;
  static constexpr int kCount = 8;
  CONVSCOPE_INLINE static V zero() { return _mm256_setzero_ps(); }
  CONVSCOPE_INLINE static V set(float a) { return _mm256_set1_ps(a); }
  CONVSCOPE_INLINE static V add(V a, V b) { return _mm256_add_ps(a, b); }
  CONVSCOPE_INLINE static V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
  CONVSCOPE_INLINE static V load(const float* p) { return _mm256_loadu_ps(p); }
  CONVSCOPE_INLINE static void store(float* p, V a) { _mm256_storeu_ps(p, a); }
  using Mask = __mmask8;
  CONVSCOPE_INLINE static V load(const float* p, Mask m) { return _mm256_maskz_loadu_ps(m, p); }
  CONVSCOPE_INLINE static void store(float* p, V a, Mask m) { _mm256_mask_storeu_ps(p, m, a); }
  CONVSCOPE_INLINE static Mask lanes(int begin, int end) {
    return static_cast<Mask>(((1u << end) - 1u) & ~((1u << begin) - 1u));
  }
  CONVSCOPE_INLINE static V even(V a, V b, Mask m = 0xff) {
    return _mm256_maskz_permutex2var_ps(m, a, _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14), b);
  }
  CONVSCOPE_INLINE static V odd(V a, V b, Mask m = 0xff) {
    return _mm256_maskz_permutex2var_ps(m, a, _mm256_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15), b);
  }
  template <int K>
  CONVSCOPE_INLINE static V shift(V before, V here, V after, Mask m) {
    if constexpr (K < 0) {
      return _mm256_castsi256_ps(_mm256_maskz_alignr_epi32(
          m, _mm256_castps_si256(here), _mm256_castps_si256(before), kCount + K));
    } else if constexpr (K > 0) {
      return _mm256_castsi256_ps(
          _mm256_maskz_alignr_epi32(m, _mm256_castps_si256(after), _mm256_castps_si256(here), K));
    } else {
      return here;
    }
  }
  CONVSCOPE_INLINE static V weave_low(V a, V b) {
    return _mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), 0x20);
  }
  CONVSCOPE_INLINE static V weave_high(V a, V b) {
    return _mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), 0x31);
  }
  CONVSCOPE_INLINE static float sum(V a) {
    const __m128 half = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 pair = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
  }
};

using NarrowPixels = EightPixels;

#else

using NarrowPixels = WidePixels;

#endif

// Returns a mask of the lanes that are inside a row of `width` pixels, for a vector that begins at
// column `at`. Only the first `limit` lanes may be set.
template <class L>
CONVSCOPE_INLINE typename L::Mask lanes_inside(std::int64_t at, std::int64_t width,
                                               std::int64_t limit = L::kCount) {
  const std::int64_t n = L::kCount;
  std::int64_t begin = at < 0 ? -at : 0;
  if (begin > n) begin = n;
  std::int64_t end = width - at < limit ? width - at : limit;
  if (end > n) end = n;
  if (end < begin) end = begin;
  return L::lanes(static_cast<int>(begin), static_cast<int>(end));
}

// Returns masks of the lanes that are inside a row of `width` pixels, for two interleaved vectors
// at column `at`.
template <class L>
struct PairMask {
  CONVSCOPE_INLINE PairMask(std::int64_t at, std::int64_t width)
      : low(lanes_inside<L>(at, width)),
        high(lanes_inside<L>(at + L::kCount, width)),
        all(at >= 0 && at + 2 * L::kCount <= width) {}
  typename L::Mask low, high;
  bool all;
};

// Stores a[0] b[0] a[1] b[1] ... at `to`, or with `add`, adds these numbers to the elements at
// `to`.
template <class L>
CONVSCOPE_INLINE void store_woven(float* to, typename L::V a, typename L::V b,
                                  const PairMask<L>& here, bool add) {
  typename L::V low = L::weave_low(a, b);
  typename L::V high = L::weave_high(a, b);
  if (add) {
    low = L::fma(L::set(1.0f), L::load(to, here.low), low);
    high = L::fma(L::set(1.0f), L::load(to + L::kCount, here.high), high);
  }
  if (here.all) {
    L::store(to, low);
    L::store(to + L::kCount, high);
  } else {
    L::store(to, low, here.low);
    L::store(to + L::kCount, high, here.high);
  }
}

#if defined(CONVSCOPE_ISA_IS_AVX512)
// Combines two vectors of eight lanes to one of sixteen, so that one store is enough.
CONVSCOPE_INLINE void store_woven(float* to, __m256 a, __m256 b, const PairMask<EightPixels>& here,
                                  bool add) {
  using L = WidePixels;
  const auto lanes = static_cast<__mmask16>(here.low | here.high << 8);
  __m512 woven = L::weave_low(_mm512_castps256_ps512(a), _mm512_castps256_ps512(b));
  if (add) woven = L::fma(L::set(1.0f), L::load(to, lanes), woven);
  L::store(to, woven, lanes);
}
#endif

}  // namespace convscope::CONVSCOPE_ISA
