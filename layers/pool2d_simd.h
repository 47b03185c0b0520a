// SPDX-License-Identifier: Apache-2.0
// pool2d_simd.h: windows of 2x2 at stride 2 without padding, in f32: the pooling of LeNet and VGG.
#pragma once

#include <cstdint>

#include "framework/cpu_isa.h"

namespace convscope {

// Planes of H x W pixels become planes of P x Q, 2 P <= H and 2 Q <= W; what is left over at the
// lower and right edge is not read, and its gradient is 0.
struct Pool2x2Sizes {
  std::int64_t planes, h, w, p, q;
};

struct Pool2x2Kernels {
  // taps[i] = 2 r + s of the largest of window i; null: not wanted.
  void (*max_forward)(const Pool2x2Sizes&, const float* x, float* y, std::uint8_t* taps);
  void (*max_backward)(const Pool2x2Sizes&, const float* dy, const std::uint8_t* taps, float* dx);
  void (*avg_forward)(const Pool2x2Sizes&, const float* x, float* y);
  void (*avg_backward)(const Pool2x2Sizes&, const float* dy, float* dx);
};
extern IsaTable<Pool2x2Kernels> pool2x2_kernels;

}  // namespace convscope
