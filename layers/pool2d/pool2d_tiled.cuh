// SPDX-License-Identifier: Apache-2.0
// pool2d_tiled.cuh: fast pooling kernels for the windows of well-known networks, in f32, called by
// pool2d_cuda.cu. Each function returns false, and does nothing, for other sizes.
#pragma once

#include "layers/pool2d/pool2d.h"

namespace convscope {

// Computes max pooling of 2x2 at stride 2, if the windows cover an image of even sides exactly.
bool max_pool_tiled(const Tensor& x, const Pool2dWindow& window, const Tensor& y,
                    const Tensor& taps);
// Computes the gradient of the pool above, or of 3x3 at stride 2 with a padding of 1.
bool max_pool_tiled_gradient(const Tensor& dy, const Tensor& taps, const Pool2dWindow& window,
                             const Tensor& dx);
bool avg_pool_tiled(const Tensor& x, const Pool2dWindow& window, const Tensor& y);
bool avg_pool_tiled_gradient(const Tensor& dy, const Pool2dWindow& window, const Tensor& dx);
// Computes y [N,C,1,1]: means of whole planes.
bool plane_means(const Tensor& x, const Tensor& y);
bool plane_means_gradient(const Tensor& dy, const Tensor& dx);

}  // namespace convscope
