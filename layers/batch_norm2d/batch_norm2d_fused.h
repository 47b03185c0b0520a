// SPDX-License-Identifier: Apache-2.0
// batch_norm2d_fused.h: training-mode batch norm fused with its neighbours. Channels are processed
// one after the other, so that a channel is read from memory once and later passes read it from the
// cache.
//
// Forward    y = activation((x - mean[c]) factor[c] + shift[c] + residual), factor and shift from
//            the statistics of the batch; the activation is min(max(., 0), most) when `relu` is
//            set, and residual may be undefined
// Backward   If y is given (there is an activation), g = dy where 0 < y < most, otherwise 0, and dy
//            is overwritten by g. If y is undefined, g = dy. The gradient of the residual is g. The
//            kernel also computes the sums of g and of g (x - mean), and dx = a g + b (x - mean) +
//            d (batch_norm2d_factors.h defines a, b and d)
// Shapes     x, y, dy, dx, residual, residual_gradient [N,C,H,W] f32 or f64; statistics, sums [C]
//            f64. On the CPU the images may be stored as [N,C/16,H,W,16], f32; C is that of weight
// Numerics   The additions have the same order as in the passes of batch_norm2d.h, so results have
//            the same bits. In NCHW16c order and bits differ
// Usage      batch_norm_train_kernel.get(device)({.x = x, .weight = w, .bias = b, ...});
#pragma once

#include <limits>

#include "framework/kernel_slot.h"
#include "framework/tensor.h"

namespace convscope {

struct BatchNormTrainArgs {
  Tensor x, weight, bias;
  double eps = 0;
  Tensor residual;  // undefined: none
  bool relu = false;
  float most = std::numeric_limits<float>::infinity();  // of the ReLU; finite on the CPU only
  Tensor y;                                             // assigned; may be the memory of residual
  Tensor mean, variance, inverse_deviation;             // assigned
};
extern CONVSCOPE_API KernelSlot<void(const BatchNormTrainArgs&)> batch_norm_train_kernel;

struct BatchNormTrainGradientArgs {
  Tensor dy;  // changed: becomes g
  Tensor x, weight;
  Tensor y;  // of the forward; undefined: no activation
  float most = std::numeric_limits<float>::infinity();
  Tensor mean, inverse_deviation;
  Tensor residual_gradient;          // assigned g; undefined: not needed
  bool residual_accumulate = false;  // add g to it instead
  Tensor dx;                         // assigned; undefined if not needed; may be the memory of dy
  Tensor sum_dy, sum_dy_x;           // assigned: sum of g, and sum of g (x - mean)
};
extern CONVSCOPE_API KernelSlot<void(const BatchNormTrainGradientArgs&)>
    batch_norm_train_gradient_kernel;

}  // namespace convscope
