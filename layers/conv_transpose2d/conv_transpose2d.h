// SPDX-License-Identifier: Apache-2.0
// conv_transpose2d.h: the transposed convolution, as an operation and as a layer. It enlarges an
// image: every pixel of x adds a multiple of the kernel to y.
//
// Shapes      x [N,C,H,W], w [C,K/G,R,S], b [K] or undefined -> y [N,K,P,Q]; f32 or f64
//             P = (H - 1) stride - 2 padding + dilation (R - 1) + output_padding + 1; Q likewise
// Formula     the backward_data of a convolution with the same w, stride, padding and dilation:
//             y[n,k,p,q] = b[k] + sum of x[n,c,h,w] w[c,k,r,s] over all (c, h, w, r, s) with
//             h stride - padding + r dilation = p and w stride - padding + s dilation = q
// Algorithms  those of conv2d: forward runs its backward_data, dx its forward, dw its
//             backward_weight with x and dy exchanged. A policy names the direction of this layer.
// Gradients   dx is assigned, dw and db accumulate. Saved: x for dw, w for dx.
// Precision   with bf16 or f16, x, w and dy are rounded to it; y and the gradients are rounded to
//             it and returned as f32
// Usage       Variable y = conv_transpose2d(x, w, b, {.stride_h = 2, .stride_w = 2});
//             in a config: {type: conv_transpose2d, out_channels: 16, kernel_size: 2, stride: 2}
// Paper       M. Zeiler, D. Krishnan, G. Taylor, R. Fergus: Deconvolutional Networks, CVPR 2010;
//             V. Dumoulin, F. Visin: A guide to convolution arithmetic for deep learning, arXiv
//             1603.07285
#pragma once

#include "layers/conv2d/conv2d.h"
#include "layers/conv_transpose2d/algorithm.h"
#include "layers/dispatch/choice_cache.h"

namespace convscope {

struct ConvTranspose2dParams {
  Conv2dParams conv = {};  // of the convolution whose backward_data this is
  // Rows and columns that are added at the bottom and right; below the stride or the dilation.
  std::int64_t output_padding_h = 0, output_padding_w = 0;
};

using ConvTranspose2dChoices = ChoiceCache<ConvTranspose2dProblem>;

// Returns the checked problem of these tensors. Throws an error that names x and w. For f32 tensors
// params.conv.precision decides the types.
CONVSCOPE_API ConvTranspose2dProblem conv_transpose2d_problem(const Shape& x, const Shape& w,
                                                              const ConvTranspose2dParams& params,
                                                              DType dtype = DType::f32);

CONVSCOPE_API Variable conv_transpose2d(const Variable& x, const Variable& w, const Variable& b,
                                        const ConvTranspose2dParams& params = {},
                                        const Conv2dPolicy& policy = {});

// Parameters: weight [C,K/G,R,S], bias [K].
class CONVSCOPE_API ConvTranspose2d final : public Module {
 public:
  ConvTranspose2d(const Conv2dOptions& options, const ConvTranspose2dParams& params,
                  LayerContext& context);
  std::string kind() const override { return "conv_transpose2d"; }
  Variable forward(const Variable& x) override;
  Shape output_shape(const Shape& input) const override;
  Variable weight() const override { return weight_; }
  std::int64_t weight_groups() const override { return params_.conv.groups; }
  std::unique_ptr<OperatorUse> operator_use(const Shape& input) const override;
  const ConvTranspose2dParams& params() const { return params_; }
  Shape kernel() const { return {weight_.shape()[2], weight_.shape()[3]}; }

 private:
  ConvTranspose2dParams params_;
  Variable weight_, bias_;
  Ref<ConvTranspose2dChoices> choices_;
};

}  // namespace convscope
