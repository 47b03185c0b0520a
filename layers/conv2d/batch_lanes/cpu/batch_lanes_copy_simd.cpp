// SPDX-License-Identifier: Apache-2.0
// batch_lanes_copy_simd.cpp: copies images between [samples, size] and [size, L] by transposing
// register tiles.
//
// Method     AVX-512 transposes 16 lanes in 16 x 16 tiles, 8 lanes in two 8 x 8 tiles side by side,
//            and 4 lanes in four registers (16 elements of 4 samples). The last few elements are
//            copied one by one. Other instruction sets use the transpose of gemm (batch_lanes.cpp).
// Read next  transpose_16x16.h; batch_lanes_simd.cpp, which reads the transposed images
#include "framework/simd/transpose_16x16.h"
#include "layers/conv2d/batch_lanes/cpu/batch_lanes_parts.h"

namespace convscope::CONVSCOPE_ISA {

#if defined(CONVSCOPE_ISA_IS_AVX512)

namespace {

// Transposes a 4 x 4 matrix whose elements are groups of four floats (quarters of a register).
// Register i holds row i.
CONVSCOPE_INLINE void transpose_quarters(__m512 (&v)[4]) {
  const __m512 a = _mm512_maskz_shuffle_f32x4(0xffff, v[0], v[1], 0x44);  // 00 01 10 11
  const __m512 b = _mm512_maskz_shuffle_f32x4(0xffff, v[0], v[1], 0xee);  // 02 03 12 13
  const __m512 c = _mm512_maskz_shuffle_f32x4(0xffff, v[2], v[3], 0x44);
  const __m512 d = _mm512_maskz_shuffle_f32x4(0xffff, v[2], v[3], 0xee);
  v[0] = _mm512_maskz_shuffle_f32x4(0xffff, a, c, 0x88);
  v[1] = _mm512_maskz_shuffle_f32x4(0xffff, a, c, 0xdd);
  v[2] = _mm512_maskz_shuffle_f32x4(0xffff, b, d, 0x88);
  v[3] = _mm512_maskz_shuffle_f32x4(0xffff, b, d, 0xdd);
}
// Transposes the 16 floats of a register as a 4 x 4 matrix.
CONVSCOPE_INLINE __m512 transpose_4x4(__m512 v) {
  const __m512i at = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_maskz_permutexvar_ps(0xffff, at, v);
}

Index to_16_lanes(const float* from, Index samples, Index size, float* to) {
  for (Index i = 0; i < size; i += 16) {
    const auto count = static_cast<int>(smaller(16, size - i));
    __m512 v[16];
#pragma GCC unroll 16
    for (int n = 0; n < 16; ++n) {
      v[n] = n < samples ? load_first(from + n * size + i, count).v : zero().v;
    }
    transpose_16x16(v);
#pragma GCC unroll 16
    for (int j = 0; j < 16; ++j) {
      if (j < count) _mm512_storeu_ps(to + (i + j) * 16, v[j]);
    }
  }
  return size;
}

Index from_16_lanes(const float* from, Index samples, Index size, float* to) {
  for (Index i = 0; i < size; i += 16) {
    const auto count = static_cast<int>(smaller(16, size - i));
    __m512 v[16];
#pragma GCC unroll 16
    for (int j = 0; j < 16; ++j) {
      v[j] = j < count ? _mm512_loadu_ps(from + (i + j) * 16) : zero().v;
    }
    transpose_16x16(v);
#pragma GCC unroll 16
    for (int n = 0; n < 16; ++n) {
      if (n < samples) store_first(to + n * size + i, Vec{v[n]}, count);
    }
  }
  return size;
}

Index to_8_lanes(const float* from, Index samples, Index size, float* to) {
  Index i = 0;
  for (; i + 32 <= size; i += 32) {
    __m512 v[16];
#pragma GCC unroll 8
    for (int n = 0; n < 8; ++n) {
      v[n] = n < samples ? _mm512_loadu_ps(from + n * size + i) : zero().v;
      v[n + 8] = n < samples ? _mm512_loadu_ps(from + n * size + i + 16) : zero().v;
    }
    transpose_16x16(v);
#pragma GCC unroll 16
    for (int j = 0; j < 16; ++j) {
      _mm256_storeu_ps(to + (i + j) * 8, _mm512_maskz_extractf32x8_ps(0xff, v[j], 0));
      _mm256_storeu_ps(to + (i + j + 16) * 8, _mm512_maskz_extractf32x8_ps(0xff, v[j], 1));
    }
  }
  return i;
}

Index from_8_lanes(const float* from, Index samples, Index size, float* to) {
  Index i = 0;
  for (; i + 32 <= size; i += 32) {
    __m512 v[16];
#pragma GCC unroll 16
    for (int j = 0; j < 16; ++j) {
      const __m512 low = _mm512_zextps256_ps512(_mm256_loadu_ps(from + (i + j) * 8));
      v[j] = _mm512_maskz_insertf32x8(0xffff, low, _mm256_loadu_ps(from + (i + j + 16) * 8), 1);
    }
    transpose_16x16(v);
#pragma GCC unroll 8
    for (int n = 0; n < 8; ++n) {
      if (n < samples) {
        _mm512_storeu_ps(to + n * size + i, v[n]);
        _mm512_storeu_ps(to + n * size + i + 16, v[n + 8]);
      }
    }
  }
  return i;
}

Index to_4_lanes(const float* from, Index samples, Index size, float* to) {
  Index i = 0;
  for (; i + 16 <= size; i += 16) {
    __m512 v[4];
#pragma GCC unroll 4
    for (int n = 0; n < 4; ++n) {
      v[n] = n < samples ? _mm512_loadu_ps(from + n * size + i) : zero().v;
    }
    transpose_quarters(v);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) _mm512_storeu_ps(to + i * 4 + j * 16, transpose_4x4(v[j]));
  }
  return i;
}

Index from_4_lanes(const float* from, Index samples, Index size, float* to) {
  Index i = 0;
  for (; i + 16 <= size; i += 16) {
    __m512 v[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) v[j] = transpose_4x4(_mm512_loadu_ps(from + i * 4 + j * 16));
    transpose_quarters(v);
#pragma GCC unroll 4
    for (int n = 0; n < 4; ++n) {
      if (n < samples) _mm512_storeu_ps(to + n * size + i, v[n]);
    }
  }
  return i;
}

}  // namespace

void to_lanes(const float* from, Index samples, Index size, int lanes, float* to) {
  const Index done = lanes == 16  ? to_16_lanes(from, samples, size, to)
                     : lanes == 8 ? to_8_lanes(from, samples, size, to)
                                  : to_4_lanes(from, samples, size, to);
  for (Index i = done; i < size; ++i) {
    for (Index n = 0; n < lanes; ++n) to[i * lanes + n] = n < samples ? from[n * size + i] : 0.0f;
  }
}

void from_lanes(const float* from, Index samples, Index size, int lanes, float* to) {
  const Index done = lanes == 16  ? from_16_lanes(from, samples, size, to)
                     : lanes == 8 ? from_8_lanes(from, samples, size, to)
                                  : from_4_lanes(from, samples, size, to);
  for (Index n = 0; n < samples; ++n) {
    for (Index i = done; i < size; ++i) to[n * size + i] = from[i * lanes + n];
  }
}

#endif

}  // namespace convscope::CONVSCOPE_ISA
