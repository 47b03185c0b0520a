// SPDX-License-Identifier: Apache-2.0
// depthwise_blocked_tiles.h: the part of depthwise convolution in NCHW16c
// (layers/dispatch/activation_layout.h) that depends on the instruction set: one block of 16
// channels of one image, [H,W,16], with its kernels [R,S,16].
#pragma once

#include <cstdint>

#include "framework/simd/cpu_isa.h"
#include "layers/conv2d/depthwise/cpu/depthwise_planes.h"

namespace convscope {

// One dimension of a pass. Pixel i of `out`, i < count, is at first + i step and sums taps t <
// taps: the element tap + t tap_step of the kernel, times the element at + i pixel + t reach of
// `in`, where that exists.
struct DepthwiseAxis {
  std::int64_t count = 0, first = 0, step = 1;
  std::int64_t taps = 0, tap = 0, tap_step = 1;
  std::int64_t at = 0, pixel = 1, reach = 1;
  std::int64_t in = 0, kernel = 0;  // elements of `in` and of the kernel in this dimension
};

// A pass over one block of channels, or over one of its phases. In a forward pass in = x, out = y.
// In backward_data in = dy, out = dx; with strides above 1 the pixels of dx of one residue modulo
// the strides are a phase.
struct DepthwisePhase {
  DepthwiseAxis h, w;
  std::int64_t out_w = 0;  // all columns of `out`
  std::int64_t ahead = 0;  // prefetch `in` so many rows ahead; 0: never
};

// The arrays of one block of channels.
struct DepthwiseBlock {
  const float* in = nullptr;
  const float* w = nullptr;         // [R,S,16]
  const float* start = nullptr;     // [16], or null: 0
  const float* residual = nullptr;  // as `out`, or null
  bool relu = false;
  float most = 0;  // upper bound of relu; infinity: none
  float* out = nullptr;
};

struct DepthwiseBlocked {
  // Computes rows [begin, end) of a phase: start + sums + residual; if relu, at least 0 and at most
  // `most`.
  void (*rows)(const DepthwisePhase& phase, const DepthwiseBlock& block, std::int64_t begin,
               std::int64_t end) = nullptr;
};
// Images of one block of channels, x_step and dy_step floats apart, and rows [begin, end) of dy.
struct DepthwiseUnit {
  const float* x = nullptr;
  std::int64_t x_step = 0;
  const float* dy = nullptr;
  std::int64_t dy_step = 0;
  std::int64_t images = 0, begin = 0, end = 0;
  // Prefetch so many floats ahead of the numbers that are read; 0: never.
  std::int64_t x_ahead = 0, dy_ahead = 0;
};

struct DepthwiseBlockedWeight {
  // sums[R,S,16] += correlation of x with dy, in chains of about kSumChain pixels.
  void (*weight)(const DepthwiseMap& map, const DepthwiseUnit& unit, float* sums) = nullptr;
};

extern IsaTable<DepthwiseBlocked> depthwise_blocked;
extern IsaTable<DepthwiseBlockedWeight> depthwise_blocked_weight;

}  // namespace convscope
