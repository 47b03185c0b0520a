// SPDX-License-Identifier: Apache-2.0
// lane_transpose.h: transposes kLanes vectors as a square matrix; for *_simd.cpp files.
#pragma once

#include "framework/simd/simd.h"
#include "framework/simd/transpose_16x16.h"

namespace convscope::CONVSCOPE_ISA {

#if defined(CONVSCOPE_ISA_IS_AVX512)

CONVSCOPE_INLINE void transpose(Vec (&v)[16]) {
  __m512 rows[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) rows[i] = v[i].v;
  transpose_16x16(rows);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) v[i].v = rows[i];
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

#else

CONVSCOPE_INLINE void transpose(Vec (&)[1]) {}

#endif

}  // namespace convscope::CONVSCOPE_ISA
