// SPDX-License-Identifier: Apache-2.0
// depthwise_planes.h: the interface of the depthwise functions that are compiled for each
// instruction set. They process planes [H,W], each with one kernel [R,S].
#pragma once

#include <cstdint>

#include "framework/simd/cpu_isa.h"

namespace convscope {

// The sizes of a convolution of one plane. They also describe backward_data of stride 1, a
// convolution from dy to dx. Its padding is negative when the forward pass pads more than the
// kernel reaches.
struct DepthwiseMap {
  std::int64_t h = 0, w = 0, r = 0, s = 0, p = 0, q = 0;
  std::int64_t stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1;
  std::int64_t pad_top = 0, pad_left = 0;
  bool rotated = false;  // taps in reverse order: the kernel rotated by 180 degrees
};

struct Conv2dProblem;
DepthwiseMap depthwise_map(const Conv2dProblem& problem);  // defined in depthwise_cpu.cpp

struct DepthwiseForward {
  // Computes y[P,Q] = b + x * w, or adds x * w to y when `accumulate`. Processes `planes`
  // consecutive planes x[H,W], each with its w[R,S] and b (null: 0).
  void (*planes)(const DepthwiseMap& map, const float* x, const float* w, const float* b,
                 bool accumulate, std::int64_t planes, float* y) = nullptr;
};
struct DepthwiseBackward {
  // Computes dx[H,W], the transposed convolution of dy[P,Q] with w[R,S], for `planes` consecutive
  // planes. With `accumulate` the results are added to dx, otherwise assigned. This function serves
  // strides above 1; for stride 1, `planes` with `rotated` computes dx.
  void (*data)(const DepthwiseMap& map, const float* dy, const float* w, bool accumulate,
               std::int64_t planes, float* dx) = nullptr;
  // Adds to sums[R,S] the correlation of `planes` planes of x with the same number of planes of dy.
  // The planes are `x_step` and `dy_step` floats apart.
  void (*weight)(const DepthwiseMap& map, const float* x, std::int64_t x_step, const float* dy,
                 std::int64_t dy_step, std::int64_t planes, float* sums) = nullptr;
};

extern IsaTable<DepthwiseForward> depthwise_forward;
extern IsaTable<DepthwiseBackward> depthwise_backward;

}  // namespace convscope
