// SPDX-License-Identifier: Apache-2.0
// batch_norm2d_nchw16c_simd.h: the f32 loops of batch norm over pixels of 16 contiguous channels,
// as in images [N,C/16,H,W,16].
#pragma once

#include <cstdint>

#include "framework/simd/cpu_isa.h"

namespace convscope {

// Arrays with one element for each channel have 16 elements. At most 64 elements are added in
// float, and these sums are added in double. ReduceKernels::sums_of_16 computes the sum of x -
// shift.
struct Nchw16cBatchNormKernels {
  // total[c] += sum of (x - mean[c])^2
  void (*square_sums)(std::int64_t pixels, const float* x, const float* mean, double* total);
  // total[c] += sum of g, total[16 + c] += sum of g (x - mean[c])
  void (*gradient_sums)(std::int64_t pixels, const float* g, const float* x, const float* mean,
                        double* total);
  // y = (x - mean) factor + shift (+ residual, when not null). With `relu`, y is clamped to
  // [0, most]. y may be residual.
  void (*apply)(std::int64_t pixels, const float* x, const float* mean, const float* factor,
                const float* shift, const float* residual, bool relu, float most, float* y);
  // g = dy where 0 < y < most (infinite: where 0 < y), otherwise 0; g may be dy.
  void (*mask)(std::int64_t pixels, const float* dy, const float* y, float most, float* g);
  // dx = a dy + b (x - mean) + d; dx may be dy.
  void (*gradient)(std::int64_t pixels, const float* dy, const float* x, const float* mean,
                   const float* a, const float* b, const float* d, float* dx);
};
extern IsaTable<Nchw16cBatchNormKernels> nchw16c_batch_norm_kernels;

}  // namespace convscope
