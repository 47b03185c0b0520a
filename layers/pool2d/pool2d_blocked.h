// SPDX-License-Identifier: Apache-2.0
// pool2d_blocked.h: the kernels of pool2d.h on images stored as [N,C/16,H,W,16], f32.
#pragma once

#include "framework/tensor.h"
#include "layers/pool2d/pool2d.h"

namespace convscope {

inline bool is_blocked(const Tensor& images) { return images.rank() == 5; }

void blocked_max_pool(const Tensor& x, const Pool2dWindow& window, const Tensor& y,
                      const Tensor& taps);
void blocked_max_pool_gradient(const Tensor& dy, const Tensor& taps, const Pool2dWindow& window,
                               const Tensor& dx);
void blocked_avg_pool(const Tensor& x, const Pool2dWindow& window, const Tensor& y);
void blocked_avg_pool_gradient(const Tensor& dy, const Pool2dWindow& window, const Tensor& dx);
void blocked_adaptive_pool(const Tensor& x, const Tensor& y);
void blocked_adaptive_pool_gradient(const Tensor& dy, const Tensor& dx);

}  // namespace convscope
