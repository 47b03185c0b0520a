// SPDX-License-Identifier: Apache-2.0
// batch_norm2d_half.h: batch norm on fp16/bf16 or f32 in NHWC, [N,1,H,W,Cp], in a compiled step
// on a GPU, fused with its neighbours.
//
// Forward    y = activation((x - mean[c]) factor[c] + shift[c] + residual), factor and shift from
//            the statistics of the batch, which also update the running ones; the activation is
//            min(max(., 0), most) when `relu` is set, and residual may be undefined
// Backward   with an activation, g = dy where 0 < y < most, otherwise 0; without one, g = dy. The
//            gradient of the residual is g; dx = a g + b (x - mean) + d; the gradients of weight
//            and bias come from sums of g and g (x - mean). dy does not change
// Shapes     x, y, dy, dx, residual and its gradient of one type: bf16, f16 or f32; C is that of
//            weight; weight, bias, their gradients and the running statistics f32 [C]; mean,
//            inverse deviation f64 [C], factors f32 [3,Cp], which the backward reads. Lanes after
//            the last channel are 0 in x, and become 0 in y and dx
// Numerics   sums in f32 and double in a fixed order (framework/cuda/channel_sums.cuh), y and dx
//            computed in f32 and rounded once: the same bits on each run
// Operands   For f32 images y and dx can be written as fp16 operands of products (half_operands.h),
//            in addition to the f32 numbers or instead of them. Their scale comes from a bound:
//              |y|  <= max over c of |weight| sqrt(N H W) + |bias|, plus the largest residual: |x -
//                   mean| is at most sqrt(N H W) deviations, because the squares of x - mean have
//                   the variance as their mean
//              |dx| <= max over c of |a| max|g| + |b| sqrt(N H W) deviation + |d|
//            A loose bound costs precision. Suppose that the bound is 2^k times the largest
//            element. An element above 2^(k - 27) times the largest keeps the 11 bits of fp16. A
//            smaller element is rounded to a multiple of 2^(k - 37) times the largest. In normally
//            distributed data with 10^5 elements in a channel, k is 6; when the number of elements
//            doubles, k grows by 1/2. With k = 6 all elements within 21 powers of two of the
//            largest keep tf32's 10 bits. The error of a smaller element is 2^-31 of the largest,
//            which is 2^20 times less than the rounding error of the largest. If residuals are
//            added, their bounds are added, too: k grows by log2 of the number of residual blocks.
#pragma once

#include <limits>

#include "framework/kernel_slot.h"
#include "framework/tensor.h"
#include "layers/dispatch/layout/half_operands.h"

namespace convscope {

struct BatchNormHalfArgs {
  Tensor x, weight, bias;
  double eps = 0, momentum = 0;
  Tensor residual;  // undefined: none
  bool relu = false;
  float most = std::numeric_limits<float>::infinity();  // of the ReLU
  Tensor y;                                             // assigned; may be undefined for f32
  Tensor mean, inverse_deviation;                       // assigned
  Tensor factors;                                       // assigned: factor, shift and mean
  Tensor running_mean, running_variance;                // updated
  // Receives y as fp16 operands, in a u8 block of half_operands_bytes(): the scale, the bound of
  // |y| and the fp16 numbers. Undefined if no operation reads this block. With bound_alone, the
  // kernel writes the scale and the bound, but no fp16 numbers.
  Tensor y_half = {};
  bool bound_alone = false;
  // The residual as fp16 operands, in a block like y_half. Defined only if y_half is defined
  // and the producer of the residual has written such a block. residual_has_bound says whether the
  // block contains a bound.
  Tensor residual_half = {};
  bool residual_has_bound = false;
  // Mean and spread of x, f32 [parts,4,Cp], computed by the producer of x for each part of the
  // pixels (framework/cuda/channel_moments.cuh). If undefined, an additional pass over x computes
  // both.
  Tensor x_moments = {};
};
extern CONVSCOPE_API KernelSlot<void(const BatchNormHalfArgs&)> batch_norm_half_kernel;

struct BatchNormHalfGradientArgs {
  Tensor dy, x, weight;
  bool relu = false;
  float most = std::numeric_limits<float>::infinity();
  Tensor y;  // y of the forward pass; undefined without a residual, because x then determines y
  Tensor mean, inverse_deviation, factors;            // of the forward
  Tensor residual_gradient;                           // assigned g; undefined: not needed
  bool residual_accumulate = false;                   // add g to it instead
  Tensor dx;                                          // assigned; undefined: not needed
  Tensor dx_half = {};                                // dx as operands; f32 only
  Tensor dw, db;                                      // assigned; undefined: not needed
  bool dw_accumulate = false, db_accumulate = false;  // added to instead
};
extern CONVSCOPE_API KernelSlot<void(const BatchNormHalfGradientArgs&)>
    batch_norm_half_gradient_kernel;

// Eval mode: y as above; mean, factor and shift f64 [C].
struct BatchNormHalfApplyArgs {
  Tensor x, mean, factor, shift, residual;
  bool relu = false;
  float most = std::numeric_limits<float>::infinity();
  Tensor y;
};
extern CONVSCOPE_API KernelSlot<void(const BatchNormHalfApplyArgs&)> batch_norm_half_apply_kernel;

}  // namespace convscope
