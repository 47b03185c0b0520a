// SPDX-License-Identifier: Apache-2.0
// transpose_16x16.h: transposes 16 AVX-512 registers as a matrix; for *_simd.cpp files.
#pragma once

#include "framework/simd/simd.h"

#if defined(CONVSCOPE_ISA_IS_AVX512)

namespace convscope::CONVSCOPE_ISA {

// Transposes a matrix of 16 rows with 16 elements. It interleaves single elements, then pairs, then
// exchanges quarters of vectors.
CONVSCOPE_INLINE void transpose_16x16(__m512 (&v)[16]) {
  __m512 t[16];
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
}

}  // namespace convscope::CONVSCOPE_ISA

#endif
