// SPDX-License-Identifier: Apache-2.0
// batch_norm2d_simd.h: the f32 loops of batch_norm2d.h over one image plane.
#pragma once

#include <cstdint>

#include "framework/cpu_isa.h"

namespace convscope {

struct BatchNormKernels {
  // Sums in double: of x, of (x - mean)^2; of dy and of dy (x - mean).
  double (*sum)(const float* x, std::int64_t n);
  double (*square_sum)(const float* x, double mean, std::int64_t n);
  void (*gradient_sums)(const float* dy, const float* x, double mean, std::int64_t n,
                        double* sum_dy, double* sum_dy_x);
  // y = x factor + shift
  void (*apply)(const float* x, float factor, float shift, float* y, std::int64_t n);
  // dx = a dy + b (x - mean) + d
  void (*gradient)(const float* dy, const float* x, float mean, float a, float b, float d,
                   float* dx, std::int64_t n);
};
extern IsaTable<BatchNormKernels> batch_norm_kernels;

}  // namespace convscope
