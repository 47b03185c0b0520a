// SPDX-License-Identifier: Apache-2.0
// deform_conv2d.h: the deformable convolution as a differentiable operation and as a layer.
//
//   y[n,k,p,q] = b[k] + sum over c < C/G, r < R, s < S of
//                w[k,c,r,s] mask[n,j,p,q] sample(x[n, g C/G + c], v, u),   g = k / (K/G)
//   problem.h defines (v,u), and how sample() interpolates between pixels
//
// Operation   x [N,C,H,W], offset [N,2 O R S,P,Q], mask [N,O R S,P,Q] or undefined (version 1 of
//             the paper), w [K,C/G,R,S], b [K] or undefined, y [N,K,P,Q]; f32, or f64 (on the
//             CPU, by the reference). dx, doffset and dmask are assigned, dw and db accumulate;
//             only requested ones are computed.
// Precision   as of conv2d: tf32 rounds the operands of products. Half precision rounds x, w,
//             offset, mask, b and dy. This also rounds the sampling positions: in bf16, offsets of
//             2 to 4 pixels are rounded to multiples of 1/64. y and all gradients are f32. The
//             branch of the layer (below) stays in f32.
// Layer       a second convolution, the branch, computes from x where to sample. It has the same
//             kernel, stride, padding and dilation, and 3 O R S channels, or 2 O R S without a
//             mask. `offset` is its first 2 O R S channels: v and u of each tap, next to each
//             other, in pixels. `mask` is the sigmoid of the other channels. Weights and biases of
//             the branch are initialised to 0, so offsets are 0 and the mask is 0.5.
// Parameters  of the layer: out_channels, kernel_size, stride, padding, dilation, groups, bias,
//             init: as for conv2d
//             offset_groups    O: neighbouring C/O channels share their sampling positions, default
//                              1
//             mask             false: version 1, default true
//             offset_lr_scale  factor of the branch's learning rate, default 0.1
//             algorithm        the algorithm of the deformable convolution. The branch follows the
//                              block `conv`, whose key `layout` applies to both convolutions
// Transforms  Transforms of the weight (a pruning mask, a quantiser) apply to w, not to the branch.
//             Transforms of the input are applied before both convolutions.
// Device      the CPU, in f32; CUDA, in each precision
// Usage       Variable y = deform_conv2d(x, offset, mask, w, b, {.offset_groups = 2});
//             in a config: {type: deform_conv2d, out_channels: 16, kernel_size: 3, padding: 1}
// Paper       J. Dai et al.: Deformable Convolutional Networks, ICCV 2017, arXiv 1703.06211;
//             X. Zhu et al.: Deformable ConvNets v2, CVPR 2019, arXiv 1811.11168: the mask, and a
//             tenth of the learning rate for the branch
#pragma once

#include <memory>
#include <string>

#include "layers/conv2d/conv2d.h"
#include "layers/deform_conv2d/algorithm.h"
#include "layers/dispatch/choice_cache.h"

namespace convscope {

struct DeformConv2dParams {
  Conv2dParams conv = {};
  std::int64_t offset_groups = 1;
};

extern template class ChoiceCache<DeformConv2dProblem>;
using DeformConv2dChoice = Choice<DeformConv2dProblem>;
using DeformConv2dChoices = ChoiceCache<DeformConv2dProblem>;  // of one layer

// Returns the checked problem of these tensors; errors name x and w.
CONVSCOPE_API DeformConv2dProblem deform_conv2d_problem(const Shape& x, const Shape& w,
                                                        const DeformConv2dParams& params, bool mask,
                                                        DType dtype = DType::f32);

CONVSCOPE_API Variable deform_conv2d(const Variable& x, const Variable& offset,
                                     const Variable& mask, const Variable& w, const Variable& b,
                                     const DeformConv2dParams& params = {},
                                     const AlgorithmPolicy& policy = {});
CONVSCOPE_API Variable deform_conv2d(const Variable& x, const Variable& offset,
                                     const Variable& mask, const Variable& w, const Variable& b,
                                     const DeformConv2dParams& params,
                                     const Ref<DeformConv2dChoices>& choices);

// Computes one direction by the chosen algorithm. Undefined outputs are not computed.
CONVSCOPE_API void execute_deform_conv2d(const DeformConv2dChoice& choice,
                                         const DeformConv2dProblem& problem, Direction direction,
                                         Operands operands);

struct DeformConv2dOptions {
  Conv2dOptions conv = {};  // its policy is for the deformable convolution
  std::int64_t offset_groups = 1;
  bool mask = true;
  double offset_lr_scale = 0.1;
  Conv2dPolicy branch_policy = {};
};

// Parameters: weight [K,C/G,R,S], bias [K], branch.weight, branch.bias.
class CONVSCOPE_API DeformConv2d final : public Module {
 public:
  DeformConv2d(const DeformConv2dOptions& options, LayerContext& context);
  std::string kind() const override { return "deform_conv2d"; }
  Variable forward(const Variable& x) override;
  Shape output_shape(const Shape& input) const override;
  // Visits the branch, then this layer.
  void walk(const Shapes& inputs, const WalkVisitor& visit) override;
  Variable weight() const override { return weight_; }
  std::int64_t weight_groups() const override { return options_.conv.params.groups; }
  std::unique_ptr<OperatorUse> operator_use(const Shape& input) const override;

  // The offsets and the mask of an input. The mask is undefined in layers without a mask.
  struct Places {
    Variable offset, mask;
  };
  Places places(const Variable& x) const { return places_of(transformed_input(x)); }

  DeformConv2dProblem problem(const Shape& input, DType dtype = DType::f32) const;
  const DeformConv2dOptions& options() const { return options_; }
  const Conv2d& branch() const { return *branch_; }

 private:
  Places places_of(const Variable& input) const;  // after the transforms
  DeformConv2dParams params() const { return {options_.conv.params, options_.offset_groups}; }
  std::int64_t taps() const { return options_.conv.kernel_h * options_.conv.kernel_w; }
  std::int64_t offset_channels() const { return 2 * options_.offset_groups * taps(); }
  std::int64_t mask_channels() const { return options_.offset_groups * taps(); }

  DeformConv2dOptions options_;
  Variable weight_, bias_;
  std::shared_ptr<Conv2d> branch_;
  Ref<DeformConv2dChoices> choices_;
};

}  // namespace convscope
