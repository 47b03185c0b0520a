// SPDX-License-Identifier: Apache-2.0
// batch_norm2d_simd.h: the f32 loops of batch_norm2d.h and batch_norm2d_fused.h over the image
// planes of one channel.
#pragma once

#include <cstdint>

#include "framework/simd/cpu_isa.h"

namespace convscope {

// `count` planes of n elements; `stride` is the distance of two planes in elements.
struct ChannelPlanes {
  std::int64_t count, stride, n;
};

struct BatchNormKernels {
  // Compute sums of x - shift, of (x - mean)^2, of g and of g (x - mean). At most 512 elements are
  // added in float, and these sums are added in double.
  double (*sum)(const ChannelPlanes&, const float* x, float shift);
  double (*square_sum)(const ChannelPlanes&, const float* x, float mean);
  void (*gradient_sums)(const ChannelPlanes&, const float* g, const float* x, float mean,
                        double* sum_g, double* sum_g_x);
  // y = (x - mean) factor + shift (+ residual, when not null). With `relu`, y is clamped to
  // [0, most]. y may be residual.
  void (*apply)(const ChannelPlanes&, const float* x, float mean, float factor, float shift,
                const float* residual, bool relu, float most, float* y);
  // g = dy where 0 < y < most, otherwise 0; g may be dy.
  void (*mask)(const ChannelPlanes&, const float* dy, const float* y, float most, float* g);
  // dx = a dy + b (x - mean) + d; dx may be dy.
  void (*gradient)(const ChannelPlanes&, const float* dy, const float* x, float mean, float a,
                   float b, float d, float* dx);
};
extern IsaTable<BatchNormKernels> batch_norm_kernels;

}  // namespace convscope
