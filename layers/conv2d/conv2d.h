// SPDX-License-Identifier: Apache-2.0
// conv2d.h: the convolution as a differentiable operation and as a layer.
//
//   y[n,k,p,q] = b[k] + sum over c < C/G, r < R, s < S of
//                x[n, g C/G + c, p stride_h - top + r dilation_h, q stride_w - left + s dilation_w]
//                w[k,c,r,s],   g = k / (K/G);   x outside the image is 0
//   P = (H + top + bottom - dilation_h (R - 1) - 1) / stride_h + 1 (rounded down), Q likewise
//
// x [N,C,H,W], w [K,C/G,R,S], b [K] or undefined, y [N,K,P,Q]; f32, or f64 (`reference` only). In
// half precision x, w, b and dy are rounded to fp16/bf16, and the rounded x and w are saved; y and
// the gradients are rounded to it and returned as f32.
// Gradients: dx is assigned, dw and db accumulate; only required gradients are computed. Saved: x
// when w requires a gradient, w when x requires one.
//
// Usage   Variable y = conv2d(x, w, b, {.stride_h = 2, .stride_w = 2, .padding = {1, 1, 1, 1}});
//         in a config: {type: conv2d, out_channels: 16, kernel_size: 3, padding: 1}
// Paper   Y. LeCun et al.: Gradient-Based Learning Applied to Document Recognition, Proc. IEEE
//         1998, doi 10.1109/5.726791
#pragma once

#include <array>
#include <string>
#include <vector>

#include "framework/ops/pad.h"
#include "framework/precision.h"
#include "layers/conv2d/policy.h"
#include "layers/conv2d/select.h"
#include "layers/layer_types.h"

namespace convscope {

struct Conv2dParams {
  std::int64_t stride_h = 1, stride_w = 1;
  Padding2d padding = {};
  std::int64_t dilation_h = 1, dilation_w = 1;
  std::int64_t groups = 1;
  ComputePrecision precision = ComputePrecision::f32;
};

// Returns the checked problem of these tensors. Error messages begin with `operation` and name x
// and w. For f32 tensors params.precision decides the types.
CONVSCOPE_API Conv2dProblem conv2d_problem(const Shape& x, const Shape& w,
                                           const Conv2dParams& params, DType dtype = DType::f32,
                                           const char* operation = "conv2d");

CONVSCOPE_API Variable conv2d(const Variable& x, const Variable& w, const Variable& b,
                              const Conv2dParams& params = {}, const Conv2dPolicy& policy = {});
CONVSCOPE_API Variable conv2d(const Variable& x, const Variable& w, const Variable& b,
                              const Conv2dParams& params, const Ref<Conv2dChoices>& choices);

struct Conv2dOptions {
  std::int64_t in_channels = 1;
  std::int64_t out_channels = 1;
  std::int64_t kernel_h = 1, kernel_w = 1;
  Conv2dParams params = {};  // padding: set from padding_mode
  bool bias = true;
  PadMode padding_mode = PadMode::zeros;
  std::string init = "kaiming_uniform";
  Conv2dPolicy policy = {};
  std::string name = {};  // the layer's name, for errors
};

// Returns the keys and options of the layer in a config, without the padding mode and the name.
// Similar layers use these keys too. Error messages begin with `operation`.
CONVSCOPE_API std::vector<OptionField> conv2d_fields();
CONVSCOPE_API Conv2dOptions conv2d_options(const Options& options, std::int64_t in_channels,
                                           const char* operation);

// Parameters: weight [K,C/G,R,S], bias [K].
class CONVSCOPE_API Conv2d : public Module {
 public:
  Conv2d(const Conv2dOptions& options, LayerContext& context);
  std::string kind() const override { return "conv2d"; }
  Variable forward(const Variable& x) override;
  Shape output_shape(const Shape& input) const override;
  Variable weight() const override { return weight_; }
  std::int64_t weight_groups() const override { return options_.params.groups; }
  std::unique_ptr<OperatorUse> operator_use(const Shape& input) const override;

  // Returns the convolution of an input of this shape; used by `convscope explain` and the bench.
  Conv2dProblem problem(const Shape& input, DType dtype = DType::f32) const;
  const Conv2dPolicy& policy() const { return choices_->policy(); }
  const Conv2dOptions& options() const { return options_; }

 private:
  bool pads_itself() const {
    return options_.padding_mode != PadMode::zeros && !(options_.params.padding == Padding2d{});
  }
  Conv2dOptions options_;
  Conv2dParams params_;  // the convolution's parameters after the image has been padded
  Variable weight_, bias_;
  Ref<Conv2dChoices> choices_;
};

}  // namespace convscope
