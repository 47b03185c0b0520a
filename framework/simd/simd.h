// SPDX-License-Identifier: Apache-2.0
// simd.h: one float vector type per instruction set; include it in *_simd.cpp files only.
//
// The same source is compiled with 16 lanes (AVX-512), 8 lanes (AVX2 + FMA) and 1 lane (scalar).
// Everything is forced inline and is in the namespace of its instruction set, so the linker can
// never use AVX-512 code on a path that an older CPU executes. For the same reason, a *_simd.cpp
// file uses no std templates and no Eigen.
#pragma once

#if !defined(CONVSCOPE_ISA) || !defined(CONVSCOPE_ISA_ENUM)
#error "simd.h belongs into *_simd.cpp files: CMake compiles them once for each instruction set"
#endif

#if defined(CONVSCOPE_ISA_IS_AVX512) || defined(CONVSCOPE_ISA_IS_AVX2)
#include <immintrin.h>
#endif

#define CONVSCOPE_INLINE inline __attribute__((always_inline))

namespace convscope::CONVSCOPE_ISA {

#if defined(CONVSCOPE_ISA_IS_AVX512)

inline constexpr int kLanes = 16;
inline constexpr int kRegisters = 32;
struct Vec {
  __m512 v;
};
CONVSCOPE_INLINE Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
CONVSCOPE_INLINE void store(float* p, Vec a) { _mm512_storeu_ps(p, a.v); }
// Selects the first `count` lanes (0..kLanes). Loads set the other lanes to 0; stores skip them.
CONVSCOPE_INLINE __mmask16 first_lanes(int count) {
  return static_cast<__mmask16>((1u << count) - 1u);
}
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
// Makes the compiler keep `a` in a register. Otherwise, it would reload `a` for each use.
CONVSCOPE_INLINE Vec held(Vec a) {
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

#elif defined(CONVSCOPE_ISA_IS_AVX2)

inline constexpr int kLanes = 8;
inline constexpr int kRegisters = 16;
struct Vec {
  __m256 v;
};
CONVSCOPE_INLINE Vec load(const float* p) { return {_mm256_loadu_ps(p)}; }
CONVSCOPE_INLINE void store(float* p, Vec a) { _mm256_storeu_ps(p, a.v); }
CONVSCOPE_INLINE __m256i first_lanes(int count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
CONVSCOPE_INLINE Vec load_first(const float* p, int count) {
  return {_mm256_maskload_ps(p, first_lanes(count))};
}
CONVSCOPE_INLINE void store_first(float* p, Vec a, int count) {
  _mm256_maskstore_ps(p, first_lanes(count), a.v);
}
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
CONVSCOPE_INLINE Vec held(Vec a) { return a; }  // 16 registers are too few
CONVSCOPE_INLINE float sum(Vec a) {
  const __m128 half = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  const __m128 pair = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
}

#else  // scalar: one lane, plain C++

inline constexpr int kLanes = 1;
inline constexpr int kRegisters = 16;
struct Vec {
  float v;
};
CONVSCOPE_INLINE Vec load(const float* p) { return {*p}; }
CONVSCOPE_INLINE void store(float* p, Vec a) { *p = a.v; }
CONVSCOPE_INLINE Vec load_first(const float* p, int count) { return {count > 0 ? *p : 0.0f}; }
CONVSCOPE_INLINE void store_first(float* p, Vec a, int count) {
  if (count > 0) *p = a.v;
}
CONVSCOPE_INLINE Vec broadcast(float x) { return {x}; }
CONVSCOPE_INLINE Vec operator+(Vec a, Vec b) { return {a.v + b.v}; }
CONVSCOPE_INLINE Vec operator-(Vec a, Vec b) { return {a.v - b.v}; }
CONVSCOPE_INLINE Vec operator*(Vec a, Vec b) { return {a.v * b.v}; }
CONVSCOPE_INLINE Vec operator/(Vec a, Vec b) { return {a.v / b.v}; }
CONVSCOPE_INLINE Vec sqrt(Vec a) { return {__builtin_sqrtf(a.v)}; }
CONVSCOPE_INLINE Vec max(Vec a, Vec b) { return {a.v > b.v ? a.v : b.v}; }
CONVSCOPE_INLINE Vec min(Vec a, Vec b) { return {a.v < b.v ? a.v : b.v}; }
// Rounds product and sum separately: the scalar version has no FMA instruction.
CONVSCOPE_INLINE Vec fma(Vec a, Vec b, Vec c) { return {a.v * b.v + c.v}; }
CONVSCOPE_INLINE Vec keep_where_positive(Vec a, Vec x) { return {x.v > 0.0f ? a.v : 0.0f}; }
CONVSCOPE_INLINE Vec bounded_relu(Vec a, Vec most) {
  const float positive = a.v <= 0.0f ? 0.0f : a.v;
  return {most.v < positive ? most.v : positive};
}
CONVSCOPE_INLINE Vec held(Vec a) { return a; }
CONVSCOPE_INLINE float sum(Vec a) { return a.v; }

#endif

CONVSCOPE_INLINE Vec zero() { return broadcast(0.0f); }

}  // namespace convscope::CONVSCOPE_ISA
