// SPDX-License-Identifier: Apache-2.0
// pool2d_half.cuh: pooling kernels for fp16/bf16 or f32 images in NHWC, [N,1,H,W,Cp], called by
// pool2d_cuda.cu. Tensors and results are those of the kernels of pool2d.h.
#pragma once

#include "layers/pool2d/pool2d.h"

namespace convscope {

void max_pool_half(const Tensor& x, const Pool2dWindow& window, const Tensor& y,
                     const Tensor& taps);
void max_pool_half_gradient(const Tensor& dy, const Tensor& taps, const Pool2dWindow& window,
                              const Tensor& dx);
void avg_pool_half(const Tensor& x, const Pool2dWindow& window, const Tensor& y);
void avg_pool_half_gradient(const Tensor& dy, const Pool2dWindow& window, const Tensor& dx);
void adaptive_pool_half(const Tensor& x, const Tensor& y);
void adaptive_pool_half_gradient(const Tensor& dy, const Tensor& dx);

}  // namespace convscope
