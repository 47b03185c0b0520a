// SPDX-License-Identifier: Apache-2.0
// depthwise_nchw16c_tiles.h: the interface of the functions for depthwise convolution in NCHW16c
// (layers/dispatch/activation_layout.h) that are compiled for each instruction set. They process
// one block of 16 channels of one image [H,W,16] with the kernels [R,S,16].
#pragma once

#include <cstdint>

#include "framework/simd/cpu_isa.h"
#include "layers/conv2d/depthwise/cpu/depthwise_planes.h"

namespace convscope {

// One dimension of a pass. It computes `count` pixels; pixel i has index first + i * step in `out`.
// It is the sum of products over taps t: kernel element tap + t * tap_step times element at + i *
// pixel + t * reach of `in`. Elements outside `in` are skipped.
struct DepthwiseAxis {
  std::int64_t count = 0, first = 0, step = 1;
  std::int64_t taps = 0, tap = 0, tap_step = 1;
  std::int64_t at = 0, pixel = 1, reach = 1;
  std::int64_t in = 0, kernel = 0;  // elements of `in` and of the kernel in this dimension
};

// A pass over one block of channels, or over one phase of the block. In forward, `in` is x and
// `out` is y. In backward_data, `in` is dy and `out` is dx. With strides above 1, a phase has the
// pixels of dx whose indices have the same residues modulo the strides.
struct DepthwisePhase {
  DepthwiseAxis h, w;
  std::int64_t out_w = 0;  // columns of all phases
  std::int64_t ahead = 0;  // rows of `in` to prefetch ahead; 0: none
};

// The arrays of one block of channels.
struct DepthwiseBlock {
  const float* in = nullptr;
  const float* w = nullptr;         // [R,S,16]
  const float* start = nullptr;     // [16], or null: 0
  const float* residual = nullptr;  // in the layout of `out`, or null
  bool relu = false;
  float most = 0;  // upper bound of relu; infinity: none
  float* out = nullptr;
};

struct DepthwiseNchw16c {
  // Computes rows [begin, end) of a phase. Each element is `start` plus the products plus the
  // residual. With `relu` the results are clamped to [0, most].
  void (*rows)(const DepthwisePhase& phase, const DepthwiseBlock& block, std::int64_t begin,
               std::int64_t end) = nullptr;
};
// A unit of work for dw: the rows [begin, end) of dy in `images` images, for one block of channels.
// Images are x_step and dy_step floats apart.
struct DepthwiseUnit {
  const float* x = nullptr;
  std::int64_t x_step = 0;
  const float* dy = nullptr;
  std::int64_t dy_step = 0;
  std::int64_t images = 0, begin = 0, end = 0;
  // Prefetch distances in floats; 0: no prefetch.
  std::int64_t x_ahead = 0, dy_ahead = 0;
};

struct DepthwiseNchw16cWeight {
  // Adds the correlation of x with dy to sums[R,S,16], in chains of about kSumChain pixels.
  void (*weight)(const DepthwiseMap& map, const DepthwiseUnit& unit, float* sums) = nullptr;
};

extern IsaTable<DepthwiseNchw16c> depthwise_nchw16c;
extern IsaTable<DepthwiseNchw16cWeight> depthwise_nchw16c_weight;

}  // namespace convscope
