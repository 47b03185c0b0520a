// SPDX-License-Identifier: Apache-2.0
// batch_norm2d_halves.h: batch norm on halves or f32 with their channels last, [N,1,H,W,Cp], in a
// planned step on a GPU, with what stands around it.
//
// Forward    y = curve((x - mean[c]) factor[c] + shift[c] + residual), factor and shift from the
//            statistics of the batch, which also move the running ones; the curve is min(max(., 0),
//            most) when `relu` is set, and residual may be undefined
// Backward   g = dy where 0 < y < most, else 0, with a curve; else g = dy. The gradient of the
//            residual is g; dx = a g + b (x - mean) + d; gradients of weight and bias from sums
//            over g and g (x - mean). dy stays as it is
// Shapes     x, y, dy, dx, residual and its gradient of one type: bf16, f16 or f32; C is that of
//            weight; weight, bias, their gradients and the running statistics f32 [C]; mean,
//            inverse deviation f64 [C], factors f32 [3,Cp], which the backward reads. Lanes behind
//            the last channel are 0 in x, and become 0 in y and dx
// Numerics   sums in f32 and double in a fixed order (framework/cuda/channel_sums.cuh), y and dx
//            computed in f32 and rounded once: the same bits on each run
// Factors    of f32 images y and dx can be written as what products read (half_factors.h), beside
//            the f32 numbers or in their place. Their scale comes of a bound:
//              |y|  <= max over c of |weight| sqrt(N H W) + |bias|, and what the residual is at
//                      most: |x - mean| is at most sqrt(N H W) deviations, because the squares of
//                      x - mean have the variance for their mean
//              |dx| <= max over c of |a| max|g| + |b| sqrt(N H W) deviation + |d|
//            What a loose bound costs: halves keep 11 bits of what is above 2^(k - 27) of the
//            largest number when the bound is 2^k times that, and steps of 2^(k - 37) of it below.
//            Data of a normal distribution have k = 6 with 10^5 numbers a channel, and k grows by
//            1/2 when those double: so tf32's 10 bits are there for 21 powers of two, and what is
//            smaller is off by 2^-31 of the largest, less than the rounding of the largest by 2^20.
//            A sum of residuals adds their bounds: k grows by log2 of the blocks of a stage.
#pragma once

#include <limits>

#include "framework/kernel_slot.h"
#include "framework/tensor.h"
#include "layers/dispatch/layout/half_factors.h"

namespace convscope {

struct BatchNormHalvesArgs {
  Tensor x, weight, bias;
  double eps = 0, momentum = 0;
  Tensor residual;  // undefined: none
  bool relu = false;
  float most = std::numeric_limits<float>::infinity();  // of the ReLU
  Tensor y;                                             // assigned; of f32 it may be undefined
  Tensor mean, inverse_deviation;                       // assigned
  Tensor factors;                                       // assigned: factor, shift and mean
  Tensor running_mean, running_variance;                // moved
  // u8, a block of half_factors_bytes(), assigned: y as factors; undefined: not wanted. Behind the
  // scale stands the bound. bound_alone: only these two are written.
  Tensor y_factors = {};
  bool bound_alone = false;
  // Such a block of the residual, where both are there; residual_has_bound: it has a bound, too.
  Tensor residual_factors = {};
  bool residual_has_bound = false;
  // f32 [parts,4,Cp], mean and spread of x (framework/cuda/channel_moments.cuh) that whoever wrote
  // x has left; undefined: they are taken of x in a pass of its own.
  Tensor x_moments = {};
};
extern CONVSCOPE_API KernelSlot<void(const BatchNormHalvesArgs&)> batch_norm_halves_kernel;

struct BatchNormHalvesGradientArgs {
  Tensor dy, x, weight;
  bool relu = false;
  float most = std::numeric_limits<float>::infinity();
  Tensor y;  // of the forward; undefined: there was no residual, so x says where it was cut off
  Tensor mean, inverse_deviation, factors;            // of the forward
  Tensor residual_gradient;                           // assigned g; undefined: not wanted
  bool residual_accumulate = false;                   // add g to it instead
  Tensor dx;                                          // assigned; undefined: not wanted
  Tensor dx_factors = {};                             // the same as factors; f32 alone
  Tensor dw, db;                                      // assigned; undefined: not wanted
  bool dw_accumulate = false, db_accumulate = false;  // added to instead
};
extern CONVSCOPE_API KernelSlot<void(const BatchNormHalvesGradientArgs&)>
    batch_norm_halves_gradient_kernel;

// In eval mode: y as above; mean, factor and shift f64 [C].
struct BatchNormHalvesApplyArgs {
  Tensor x, mean, factor, shift, residual;
  bool relu = false;
  float most = std::numeric_limits<float>::infinity();
  Tensor y;
};
extern CONVSCOPE_API KernelSlot<void(const BatchNormHalvesApplyArgs&)>
    batch_norm_halves_apply_kernel;

}  // namespace convscope
