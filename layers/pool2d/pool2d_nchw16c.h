// SPDX-License-Identifier: Apache-2.0
// pool2d_nchw16c.h: the kernels of pool2d.h on images stored as [N,C/16,H,W,16], f32.
#pragma once

#include "framework/tensor.h"
#include "layers/pool2d/pool2d.h"

namespace convscope {

inline bool is_nchw16c(const Tensor& images) { return images.rank() == 5; }

void nchw16c_max_pool(const Tensor& x, const Pool2dWindow& window, const Tensor& y,
                      const Tensor& taps);
void nchw16c_max_pool_gradient(const Tensor& dy, const Tensor& taps, const Pool2dWindow& window,
                               const Tensor& dx);
void nchw16c_avg_pool(const Tensor& x, const Pool2dWindow& window, const Tensor& y);
void nchw16c_avg_pool_gradient(const Tensor& dy, const Pool2dWindow& window, const Tensor& dx);
void nchw16c_adaptive_pool(const Tensor& x, const Tensor& y);
void nchw16c_adaptive_pool_gradient(const Tensor& dy, const Tensor& dx);

}  // namespace convscope
