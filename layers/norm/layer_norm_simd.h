// SPDX-License-Identifier: Apache-2.0
// layer_norm_simd.h: the f32 loops of layer_norm.h, one table per instruction set.
#pragma once

#include <cstdint>

#include "framework/simd/cpu_isa.h"

namespace convscope {

// Where the numbers of some pixels are: channel c of pixel i is at
//   planes  c stride + i
//   rows    (c / width) stride + c % width + i step; width is 16 and step is 16 for NCHW16c, whose
//           lanes after the last channel become 0; width is C for rows of numbers
struct PixelPlaces {
  std::int64_t channels, stride, width = 0, step = 0;
};

struct LayerNormKernels {
  // y = (x - mean) inverse weight + bias for `count` pixels; mean and inverse of each pixel.
  using Forward = void (*)(const PixelPlaces&, std::int64_t count, const float* x,
                           const float* weight, const float* bias, float eps, float* y, float* mean,
                           float* inverse);
  Forward planes, rows;
  // dx (null: not needed), and sums[c] += dy u, sums[C + c] += dy. `rest` is memory for 2 C floats.
  using Gradient = void (*)(const PixelPlaces&, std::int64_t count, const float* dy, const float* x,
                            const float* weight, const float* mean, const float* inverse, float* dx,
                            double* sums, float* rest);
  Gradient planes_gradient, rows_gradient;
};
extern IsaTable<LayerNormKernels> layer_norm_kernels;

}  // namespace convscope
