// SPDX-License-Identifier: Apache-2.0
// lane_sums.h: sums over the lanes of several vectors at once, and sums of products in double; for
// *_simd.cpp files. Each function adds in a fixed order, which depends on the number of lanes.
#pragma once

#include "framework/simd/lane_transpose.h"

namespace convscope::CONVSCOPE_ISA {

#if defined(CONVSCOPE_ISA_IS_AVX512)

// Returns a vector whose quarter i holds the sums of the four lanes in quarter i of a, b, c and d.
CONVSCOPE_INLINE Vec sums_of_quarters(Vec a, Vec b, Vec c, Vec d) {
  const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a.v, b.v), _mm512_unpackhi_ps(a.v, b.v));
  const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c.v, d.v), _mm512_unpackhi_ps(c.v, d.v));
  return {_mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee))};
}
// Adds the quarters of each of two vectors in pairs, so that the results fit into one vector.
// (_maskz_: GCC 12 warns about the other intrinsics.)
CONVSCOPE_INLINE Vec add_quarters(Vec a, Vec b) {
  return {_mm512_add_ps(_mm512_maskz_shuffle_f32x4(0xffff, a.v, b.v, 0x88),
                        _mm512_maskz_shuffle_f32x4(0xffff, a.v, b.v, 0xdd))};
}
// Stores sums[i] = the sum of the lanes of v[i].
CONVSCOPE_INLINE void store_sums(const Vec (&v)[4], float* sums) {
  const __m512 all = sums_of_quarters(v[0], v[1], v[2], v[3]).v;
  const __m256 eight = _mm256_add_ps(_mm512_maskz_extractf32x8_ps(0xff, all, 0),
                                     _mm512_maskz_extractf32x8_ps(0xff, all, 1));
  _mm_storeu_ps(sums, _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1)));
}
// Adds the sum of the lanes of v[i] to sums[i].
CONVSCOPE_INLINE void add_sums(const Vec (&v)[4], float* sums) {
  __m512 t = add_quarters(add_quarters(v[0], v[1]), add_quarters(v[2], v[3])).v;
  t = _mm512_add_ps(t, _mm512_maskz_permute_ps(0xffff, t, 0x4e));
  t = _mm512_add_ps(t, _mm512_maskz_permute_ps(0xffff, t, 0xb1));
  const __m512i first_of_quarter =
      _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
  const __m128 each = _mm512_maskz_extractf32x4_ps(
      0xf, _mm512_maskz_permutexvar_ps(0xffff, first_of_quarter, t), 0);
  _mm_storeu_ps(sums, _mm_add_ps(_mm_loadu_ps(sums), each));
}
// Stores out[c] = the sum of the lanes of the vector at v + c step, for c < 16.
CONVSCOPE_INLINE void store_16_sums(const float* v, std::int64_t step, float* out) {
  const auto four = [&](int c) __attribute__((always_inline)) {
    return sums_of_quarters(load(v + c * step), load(v + (c + 1) * step), load(v + (c + 2) * step),
                            load(v + (c + 3) * step));
  };
  store(out, add_quarters(add_quarters(four(0), four(4)), add_quarters(four(8), four(12))));
}

// Sums of kLanes products in double, which are exact.
struct DoubleSums {
  __m512d first = _mm512_setzero_pd(), second = _mm512_setzero_pd();
};
CONVSCOPE_INLINE void add_products(const float* a, Vec b, DoubleSums& sums) {
  const __m256 one = _mm512_maskz_extractf32x8_ps(0xff, b.v, 0);
  const __m256 two = _mm512_maskz_extractf32x8_ps(0xff, b.v, 1);
  sums.first =
      _mm512_fmadd_pd(_mm512_cvtps_pd(_mm256_loadu_ps(a)), _mm512_cvtps_pd(one), sums.first);
  sums.second =
      _mm512_fmadd_pd(_mm512_cvtps_pd(_mm256_loadu_ps(a + 8)), _mm512_cvtps_pd(two), sums.second);
}
CONVSCOPE_INLINE void store_sums(double* to, const DoubleSums& sums) {
  _mm512_storeu_pd(to, sums.first);
  _mm512_storeu_pd(to + 8, sums.second);
}

#elif defined(CONVSCOPE_ISA_IS_AVX2)

// Returns a vector whose half i holds the sums of the four lanes in half i of a, b, c and d.
CONVSCOPE_INLINE __m256 sums_of_halves(Vec a, Vec b, Vec c, Vec d) {
  return _mm256_hadd_ps(_mm256_hadd_ps(a.v, b.v), _mm256_hadd_ps(c.v, d.v));
}
CONVSCOPE_INLINE void store_sums(const Vec (&v)[4], float* sums) {
  const __m256 all = sums_of_halves(v[0], v[1], v[2], v[3]);
  _mm_storeu_ps(sums, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
}
CONVSCOPE_INLINE void store_16_sums(const float* v, std::int64_t step, float* out) {
#pragma GCC unroll 2
  for (int c = 0; c < 16; c += 8) {
    const auto four = [&](int f) __attribute__((always_inline)) {
      const float* const at = v + (c + f) * step;
      return sums_of_halves(load(at), load(at + step), load(at + 2 * step), load(at + 3 * step));
    };
    const __m256 a = four(0), b = four(4);
    store(out + c,
          {_mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31))});
  }
}

struct DoubleSums {
  __m256d first = _mm256_setzero_pd(), second = _mm256_setzero_pd();
};
CONVSCOPE_INLINE void add_products(const float* a, Vec b, DoubleSums& sums) {
  const __m128 one = _mm256_castps256_ps128(b.v);
  const __m128 two = _mm256_extractf128_ps(b.v, 1);
  sums.first = _mm256_fmadd_pd(_mm256_cvtps_pd(_mm_loadu_ps(a)), _mm256_cvtps_pd(one), sums.first);
  sums.second =
      _mm256_fmadd_pd(_mm256_cvtps_pd(_mm_loadu_ps(a + 4)), _mm256_cvtps_pd(two), sums.second);
}
CONVSCOPE_INLINE void store_sums(double* to, const DoubleSums& sums) {
  _mm256_storeu_pd(to, sums.first);
  _mm256_storeu_pd(to + 4, sums.second);
}

#else

#if defined(CONVSCOPE_ISA_IS_VECTOR4)
CONVSCOPE_INLINE void store_sums(const Vec (&v)[4], float* sums) {
  Vec t[4] = {v[0], v[1], v[2], v[3]};
  transpose(t);
  store(sums, (t[0] + t[1]) + (t[2] + t[3]));
}
#else
CONVSCOPE_INLINE void store_sums(const Vec (&v)[4], float* sums) {
  for (int i = 0; i < 4; ++i) sums[i] = v[i].v;
}
#endif
CONVSCOPE_INLINE void store_16_sums(const float* v, std::int64_t step, float* out) {
  for (int c = 0; c < 16; c += 4) {
    const float* const at = v + c * step;
    store_sums({load(at), load(at + step), load(at + 2 * step), load(at + 3 * step)}, out + c);
  }
}

struct DoubleSums {
  double v[kLanes] = {};
};
CONVSCOPE_INLINE void add_products(const float* a, Vec b, DoubleSums& sums) {
  float lanes[kLanes];
  store(lanes, b);
  for (int i = 0; i < kLanes; ++i) {
    sums.v[i] += static_cast<double>(a[i]) * static_cast<double>(lanes[i]);
  }
}
CONVSCOPE_INLINE void store_sums(double* to, const DoubleSums& sums) {
  for (int i = 0; i < kLanes; ++i) to[i] = sums.v[i];
}

#endif

#if !defined(CONVSCOPE_ISA_IS_AVX512)
CONVSCOPE_INLINE void add_sums(const Vec (&v)[4], float* sums) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) sums[i] += sum(v[i]);
}
#endif

}  // namespace convscope::CONVSCOPE_ISA
