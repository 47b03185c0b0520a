// SPDX-License-Identifier: Apache-2.0
// batch_lanes_copy_simd.cpp: copies images between [samples, size] and [size, L] by transposing
// register tiles.
//
// Method     AVX-512 transposes 16 lanes in 16 x 16 tiles, 8 lanes in two 8 x 8 tiles side by side,
//            and 4 lanes in four registers (16 elements of 4 samples). The last few elements are
//            copied one by one. Other instruction sets use the transpose of gemm (batch_lanes.cpp).
// Read next  lane_transpose.h; batch_lanes_simd.cpp, which reads the transposed images
#include "framework/simd/lane_transpose.h"
#include "layers/conv2d/batch_lanes/cpu/batch_lanes_parts.h"

namespace convscope::CONVSCOPE_ISA {

#if defined(CONVSCOPE_HAS_MASKS)

namespace {

Index to_16_lanes(const float* from, Index samples, Index size, float* to) {
  for (Index i = 0; i < size; i += 16) {
    const auto count = static_cast<int>(smaller(16, size - i));
    Vec v[16];
#pragma GCC unroll 16
    for (int n = 0; n < 16; ++n) {
      v[n] = n < samples ? load_first(from + n * size + i, count) : zero();
    }
    transpose(v);
#pragma GCC unroll 16
    for (int j = 0; j < 16; ++j) {
      if (j < count) store(to + (i + j) * 16, v[j]);
    }
  }
  return size;
}

Index from_16_lanes(const float* from, Index samples, Index size, float* to) {
  for (Index i = 0; i < size; i += 16) {
    const auto count = static_cast<int>(smaller(16, size - i));
    Vec v[16];
#pragma GCC unroll 16
    for (int j = 0; j < 16; ++j) {
      v[j] = j < count ? load(from + (i + j) * 16) : zero();
    }
    transpose(v);
#pragma GCC unroll 16
    for (int n = 0; n < 16; ++n) {
      if (n < samples) store_first(to + n * size + i, v[n], count);
    }
  }
  return size;
}

Index to_8_lanes(const float* from, Index samples, Index size, float* to) {
  Index i = 0;
  for (; i + 32 <= size; i += 32) {
    Vec v[16];
#pragma GCC unroll 8
    for (int n = 0; n < 8; ++n) {
      v[n] = n < samples ? load(from + n * size + i) : zero();
      v[n + 8] = n < samples ? load(from + n * size + i + 16) : zero();
    }
    transpose(v);
#pragma GCC unroll 16
    for (int j = 0; j < 16; ++j) {
      store_halves(to + (i + j) * 8, to + (i + j + 16) * 8, v[j]);
    }
  }
  return i;
}

Index from_8_lanes(const float* from, Index samples, Index size, float* to) {
  Index i = 0;
  for (; i + 32 <= size; i += 32) {
    Vec v[16];
#pragma GCC unroll 16
    for (int j = 0; j < 16; ++j) {
      v[j] = load_halves(from + (i + j) * 8, from + (i + j + 16) * 8);
    }
    transpose(v);
#pragma GCC unroll 8
    for (int n = 0; n < 8; ++n) {
      if (n < samples) {
        store(to + n * size + i, v[n]);
        store(to + n * size + i + 16, v[n + 8]);
      }
    }
  }
  return i;
}

Index to_4_lanes(const float* from, Index samples, Index size, float* to) {
  Index i = 0;
  for (; i + 16 <= size; i += 16) {
    Vec v[4];
#pragma GCC unroll 4
    for (int n = 0; n < 4; ++n) {
      v[n] = n < samples ? load(from + n * size + i) : zero();
    }
    transpose_quarters(v);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) store(to + i * 4 + j * 16, transpose_4x4(v[j]));
  }
  return i;
}

Index from_4_lanes(const float* from, Index samples, Index size, float* to) {
  Index i = 0;
  for (; i + 16 <= size; i += 16) {
    Vec v[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) v[j] = transpose_4x4(load(from + i * 4 + j * 16));
    transpose_quarters(v);
#pragma GCC unroll 4
    for (int n = 0; n < 4; ++n) {
      if (n < samples) store(to + n * size + i, v[n]);
    }
  }
  return i;
}

}  // namespace

void to_lanes(const float* from, Index samples, Index size, int lanes, float* to) {
  const Index done = lanes == kLanes       ? to_16_lanes(from, samples, size, to)
                     : lanes == kLanes / 2 ? to_8_lanes(from, samples, size, to)
                                           : to_4_lanes(from, samples, size, to);
  for (Index i = done; i < size; ++i) {
    for (Index n = 0; n < lanes; ++n) to[i * lanes + n] = n < samples ? from[n * size + i] : 0.0f;
  }
}

void from_lanes(const float* from, Index samples, Index size, int lanes, float* to) {
  const Index done = lanes == kLanes       ? from_16_lanes(from, samples, size, to)
                     : lanes == kLanes / 2 ? from_8_lanes(from, samples, size, to)
                                           : from_4_lanes(from, samples, size, to);
  for (Index n = 0; n < samples; ++n) {
    for (Index i = done; i < size; ++i) to[n * size + i] = from[i * lanes + n];
  }
}

#endif

}  // namespace convscope::CONVSCOPE_ISA
