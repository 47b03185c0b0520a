// SPDX-License-Identifier: Apache-2.0
// lane_transpose.h: transposes square matrices in registers; for *_simd.cpp files.
//
//   transpose(Vec (&)[kLanes])      in place
//   copy_transposed_8x8, _4x4       blocks in memory, of at most kTransposeBlock rows
//   CONVSCOPE_HAS_MASKS (AVX-512)   also parts of vectors
#pragma once

#include "framework/simd/simd.h"
#include "framework/simd/vector4.h"

namespace convscope::CONVSCOPE_ISA {

#if defined(CONVSCOPE_ISA_IS_AVX512)

// Transposes a matrix of 16 rows with 16 elements. It interleaves single elements, then pairs, then
// exchanges quarters of vectors.
CONVSCOPE_INLINE void transpose(Vec (&rows)[16]) {
  __m512 v[16], t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) v[i] = rows[i].v;
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_maskz_unpacklo_ps(0xffff, v[i], v[i + 1]);
    t[i + 1] = _mm512_maskz_unpackhi_ps(0xffff, v[i], v[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    v[i] = _mm512_maskz_shuffle_ps(0xffff, t[i], t[i + 2], 0x44);
    v[i + 1] = _mm512_maskz_shuffle_ps(0xffff, t[i], t[i + 2], 0xee);
    v[i + 2] = _mm512_maskz_shuffle_ps(0xffff, t[i + 1], t[i + 3], 0x44);
    v[i + 3] = _mm512_maskz_shuffle_ps(0xffff, t[i + 1], t[i + 3], 0xee);
  }
  // v[4 g + i] holds rows 4 g .. 4 g + 3 of columns i, i + 4, i + 8, i + 12.
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_maskz_shuffle_f32x4(0xffff, v[i], v[4 + i], 0x88);
    t[4 + i] = _mm512_maskz_shuffle_f32x4(0xffff, v[i], v[4 + i], 0xdd);
    t[8 + i] = _mm512_maskz_shuffle_f32x4(0xffff, v[8 + i], v[12 + i], 0x88);
    t[12 + i] = _mm512_maskz_shuffle_f32x4(0xffff, v[8 + i], v[12 + i], 0xdd);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm512_maskz_shuffle_f32x4(0xffff, t[i], t[8 + i], 0x88);
    v[4 + i] = _mm512_maskz_shuffle_f32x4(0xffff, t[4 + i], t[12 + i], 0x88);
    v[8 + i] = _mm512_maskz_shuffle_f32x4(0xffff, t[i], t[8 + i], 0xdd);
    v[12 + i] = _mm512_maskz_shuffle_f32x4(0xffff, t[4 + i], t[12 + i], 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) rows[i].v = v[i];
}

// Transposes a 4 x 4 matrix whose elements are groups of four floats (quarters of a register).
// Register i holds row i.
CONVSCOPE_INLINE void transpose_quarters(Vec (&v)[4]) {
  const __m512 a = _mm512_maskz_shuffle_f32x4(0xffff, v[0].v, v[1].v, 0x44);  // 00 01 10 11
  const __m512 b = _mm512_maskz_shuffle_f32x4(0xffff, v[0].v, v[1].v, 0xee);  // 02 03 12 13
  const __m512 c = _mm512_maskz_shuffle_f32x4(0xffff, v[2].v, v[3].v, 0x44);
  const __m512 d = _mm512_maskz_shuffle_f32x4(0xffff, v[2].v, v[3].v, 0xee);
  v[0].v = _mm512_maskz_shuffle_f32x4(0xffff, a, c, 0x88);
  v[1].v = _mm512_maskz_shuffle_f32x4(0xffff, a, c, 0xdd);
  v[2].v = _mm512_maskz_shuffle_f32x4(0xffff, b, d, 0x88);
  v[3].v = _mm512_maskz_shuffle_f32x4(0xffff, b, d, 0xdd);
}
// Transposes the 16 floats of a register as a 4 x 4 matrix.
CONVSCOPE_INLINE Vec transpose_4x4(Vec v) {
  const __m512i at = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return {_mm512_maskz_permutexvar_ps(0xffff, at, v.v)};
}
// Stores the first 8 lanes at `low`, the others at `high`.
CONVSCOPE_INLINE void store_halves(float* low, float* high, Vec a) {
  _mm256_storeu_ps(low, _mm512_maskz_extractf32x8_ps(0xff, a.v, 0));
  _mm256_storeu_ps(high, _mm512_maskz_extractf32x8_ps(0xff, a.v, 1));
}
CONVSCOPE_INLINE Vec load_halves(const float* low, const float* high) {
  const __m512 first = _mm512_zextps256_ps512(_mm256_loadu_ps(low));
  return {_mm512_maskz_insertf32x8(0xffff, first, _mm256_loadu_ps(high), 1)};
}

#elif defined(CONVSCOPE_ISA_IS_AVX2)

CONVSCOPE_INLINE void transpose(Vec (&v)[8]) {
  __m256 t[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(v[i].v, v[i + 1].v);
    t[i + 1] = _mm256_unpackhi_ps(v[i].v, v[i + 1].v);
  }
  __m256 four[8];
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    four[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    four[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    four[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    four[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    v[i].v = _mm256_permute2f128_ps(four[i], four[4 + i], 0x20);
    v[4 + i].v = _mm256_permute2f128_ps(four[i], four[4 + i], 0x31);
  }
}

#elif defined(CONVSCOPE_ISA_IS_SCALAR)

CONVSCOPE_INLINE void transpose(Vec (&)[1]) {}

#endif

#if defined(CONVSCOPE_ISA_IS_AVX512) || defined(CONVSCOPE_ISA_IS_AVX2)

inline constexpr int kTransposeBlock = 8;

// Copies a transposed block of 8 x 8 floats: to[j][i] = from[i][j]. Three rounds of pairwise
// shuffles.
CONVSCOPE_INLINE void copy_transposed_8x8(const float* from, std::int64_t from_row, float* to,
                                          std::int64_t to_step) {
  __m256 r[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) r[i] = _mm256_loadu_ps(from + i * from_row);
  __m256 pair[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    pair[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    pair[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  __m256 quad[8];
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    quad[i] = _mm256_shuffle_ps(pair[i], pair[i + 2], 0x44);
    quad[i + 1] = _mm256_shuffle_ps(pair[i], pair[i + 2], 0xee);
    quad[i + 2] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0x44);
    quad[i + 3] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(to + i * to_step, _mm256_permute2f128_ps(quad[i], quad[i + 4], 0x20));
    _mm256_storeu_ps(to + (i + 4) * to_step, _mm256_permute2f128_ps(quad[i], quad[i + 4], 0x31));
  }
}

CONVSCOPE_INLINE void copy_transposed_4x4(const float* from, std::int64_t from_row, float* to,
                                          std::int64_t to_step) {
  __m128 r0 = _mm_loadu_ps(from);
  __m128 r1 = _mm_loadu_ps(from + from_row);
  __m128 r2 = _mm_loadu_ps(from + 2 * from_row);
  __m128 r3 = _mm_loadu_ps(from + 3 * from_row);
  _MM_TRANSPOSE4_PS(r0, r1, r2, r3);
  _mm_storeu_ps(to, r0);
  _mm_storeu_ps(to + to_step, r1);
  _mm_storeu_ps(to + 2 * to_step, r2);
  _mm_storeu_ps(to + 3 * to_step, r3);
}

#else

inline constexpr int kTransposeBlock = kLanes;

CONVSCOPE_INLINE void copy_transposed_4x4(const float* from, std::int64_t from_row, float* to,
                                          std::int64_t to_step) {
  four::Vec v[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) v[i] = four::load(from + i * from_row);
  four::transpose(v);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) four::store(to + i * to_step, v[i]);
}
CONVSCOPE_INLINE void copy_transposed_8x8(const float* from, std::int64_t from_row, float* to,
                                          std::int64_t to_step) {
  for (int i = 0; i < 8; i += 4) {
    for (int j = 0; j < 8; j += 4) {
      copy_transposed_4x4(from + i * from_row + j, from_row, to + j * to_step + i, to_step);
    }
  }
}

#endif

}  // namespace convscope::CONVSCOPE_ISA
