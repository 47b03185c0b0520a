// SPDX-License-Identifier: Apache-2.0
// class_rows.h: copies class scores of pixels to rows and back, so that one kernel of a loss serves
// whole images and pixels.
//
//   rows[n P + p, k] = x[n, k, p]      x [N,K,..] with P values after axis 1, rows [N P, K]
#pragma once

#include "framework/kernel_slot.h"
#include "framework/tensor.h"

namespace convscope {

// Copies x [N,K,..] to rows [N P, K]; f32 or f64.
extern CONVSCOPE_API KernelSlot<void(const Tensor& x, const Tensor& rows)> class_rows_kernel;
// Copies rows [N P, K] to x [N,K,..]; f32 or f64.
extern CONVSCOPE_API KernelSlot<void(const Tensor& rows, const Tensor& x)> class_planes_kernel;

// Returns the shape of the labels of scores x: [N] for [N,K], [N,H,W] for [N,K,H,W].
CONVSCOPE_API Shape labels_shape(const Shape& x);
// Returns the shape of the rows of x: [N,K] for [N,K], [N H W,K] for [N,K,H,W].
CONVSCOPE_API Shape class_rows_shape(const Shape& x);

}  // namespace convscope
