// SPDX-License-Identifier: Apache-2.0
// depthwise_planes.h: the part of depthwise convolution that depends on the instruction set: planes
// [H,W], each with one kernel [R,S].
#pragma once

#include <cstdint>

#include "framework/simd/cpu_isa.h"

namespace convscope {

// A convolution of one plane, only its sizes. backward_data of stride 1 is such a convolution too,
// from dy to dx, with negative padding when the forward pass pads more than the kernel reaches.
struct DepthwiseMap {
  std::int64_t h = 0, w = 0, r = 0, s = 0, p = 0, q = 0;
  std::int64_t stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1;
  std::int64_t pad_top = 0, pad_left = 0;
  bool turned = false;  // taps in reverse order: the kernel rotated by 180 degrees
};

struct Conv2dProblem;
DepthwiseMap depthwise_map(const Conv2dProblem& problem);  // defined in depthwise_cpu.cpp

struct DepthwiseForward {
  // Computes y[P,Q] = b + x * w, or y += x * w when `accumulate`, for `planes` consecutive planes
  // x[H,W], each with its w[R,S] and b (null: 0).
  void (*planes)(const DepthwiseMap& map, const float* x, const float* w, const float* b,
                 bool accumulate, std::int64_t planes, float* y) = nullptr;
};
struct DepthwiseBackward {
  // Computes dx[H,W] = or += the transposed convolution of dy[P,Q] with w[R,S], for `planes`
  // consecutive planes. For strides above 1; stride 1 is a forward pass, `turned`.
  void (*data)(const DepthwiseMap& map, const float* dy, const float* w, bool accumulate,
               std::int64_t planes, float* dx) = nullptr;
  // sums[R,S] += correlation of `planes` planes of x with as many of dy, `x_step` and `dy_step`
  // floats apart.
  void (*weight)(const DepthwiseMap& map, const float* x, std::int64_t x_step, const float* dy,
                 std::int64_t dy_step, std::int64_t planes, float* sums) = nullptr;
};

extern IsaTable<DepthwiseForward> depthwise_forward;
extern IsaTable<DepthwiseBackward> depthwise_backward;

}  // namespace convscope
