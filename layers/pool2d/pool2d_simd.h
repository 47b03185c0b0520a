// SPDX-License-Identifier: Apache-2.0
// pool2d_simd.h: pooling in f32: windows of 2x2 at stride 2 without padding (LeNet, VGG), and the
// maximum over other windows at stride 1 or 2 along W (ResNet: 3x3 at stride 2).
#pragma once

#include <cstdint>

#include "framework/simd/cpu_isa.h"

namespace convscope {

// Planes of H x W pixels become planes of P x Q, 2 P <= H and 2 Q <= W. The remaining row and
// column at the lower and right edge are not read, and their gradient is 0.
struct Pool2x2Sizes {
  std::int64_t planes, h, w, p, q;
};

// Any window of at most 256 elements, clipped to the image, with at least one pixel inside.
struct MaxPoolSizes {
  std::int64_t planes, h, w, p, q;
  int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
  std::int64_t whole_begin, whole_end;  // the outputs of a row whose window is inside along W
};

struct Pool2x2Kernels {
  // The largest element of window i is at row r, column s: taps[i] = 2 r + s. taps may be null.
  void (*max_forward)(const Pool2x2Sizes&, const float* x, float* y, std::uint8_t* taps);
  void (*max_backward)(const Pool2x2Sizes&, const float* dy, const std::uint8_t* taps, float* dx);
  void (*avg_forward)(const Pool2x2Sizes&, const float* x, float* y);
  void (*avg_backward)(const Pool2x2Sizes&, const float* dy, float* dx);
  // stride_w is 1 or 2. taps[i] = r kernel_w + s of the largest element of window i; null: not
  // needed.
  void (*max_any)(const MaxPoolSizes&, const float* x, float* y, std::uint8_t* taps);
};
extern IsaTable<Pool2x2Kernels> pool2x2_kernels;

}  // namespace convscope
