// SPDX-License-Identifier: Apache-2.0
// pool2d_nchw16c_simd.h: pooling in f32 on images [N,C/16,H,W,16]: 16 channels of a pixel at once.
#pragma once

#include <cstdint>

#include "framework/simd/cpu_isa.h"

namespace convscope {

// Sizes and window of a pool from H x W to P x Q pixels. Each window has at least one pixel inside
// the image. The adaptive mean needs only the sizes.
struct Nchw16cPool {
  std::int64_t h, w, p, q;
  std::int64_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
  bool count_include_pad;
};

// All kernels compute rows [begin, end) of y (forward) or of dx (backward). Rows are counted over
// all N C/16 blocks of all images. x, y, dy and dx point to the first element of their tensor.
struct Nchw16cPoolKernels {
  // Windows have at most 256 elements. taps[i] = r kernel_w + s of the largest element of window i;
  // null: not needed.
  void (*max_forward)(const Nchw16cPool&, std::int64_t begin, std::int64_t end, const float* x,
                      float* y, std::uint8_t* taps);
  void (*max_backward)(const Nchw16cPool&, std::int64_t begin, std::int64_t end, const float* dy,
                       const std::uint8_t* taps, float* dx);
  void (*avg_forward)(const Nchw16cPool&, std::int64_t begin, std::int64_t end, const float* x,
                      float* y);
  void (*avg_backward)(const Nchw16cPool&, std::int64_t begin, std::int64_t end, const float* dy,
                       float* dx);
  void (*adaptive_forward)(const Nchw16cPool&, std::int64_t begin, std::int64_t end, const float* x,
                           float* y);
  void (*adaptive_backward)(const Nchw16cPool&, std::int64_t begin, std::int64_t end,
                            const float* dy, float* dx);
};
extern IsaTable<Nchw16cPoolKernels> nchw16c_pool_kernels;

}  // namespace convscope
