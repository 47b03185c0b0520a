// SPDX-License-Identifier: Apache-2.0
// group_norm.h: normalises each group of channels of an image to mean 0 and deviation 1, then
// applies a learned scale and shift.
//
// Shapes      x [N,C,H,W] or [N,C] -> y, the same shape; weight and bias [C]; f32 or f64
// Formula     y = (x - mean) / sqrt(variance + eps) weight[c] + bias[c], with the mean and the
//             (biased) variance over the C / groups channels and all pixels of a group
// Backward    as layer_norm.h, with means over a group; saved: x, mean and 1 / sqrt(variance + eps)
// Parameters  groups  divides C, required
//             eps     added to the variance, default 1e-5
// Usage       {type: group_norm, groups: 8}
// Paper       Y. Wu, K. He: Group Normalization, ECCV 2018, arXiv 1803.08494
#pragma once

#include "framework/autograd/variable.h"
#include "framework/kernel_slot.h"
#include "layers/module.h"

namespace convscope {

struct LayerContext;

CONVSCOPE_API Variable group_norm(const Variable& x, const Variable& weight, const Variable& bias,
                                  std::int64_t groups, double eps = 1e-5);

class CONVSCOPE_API GroupNorm final : public Module {
 public:
  GroupNorm(std::int64_t channels, std::int64_t groups, double eps, LayerContext& context);
  std::string kind() const override { return "group_norm"; }
  std::int64_t groups() const { return groups_; }
  double eps() const { return eps_; }
  Variable forward(const Variable& x) override {
    return group_norm(x, weight_, bias_, groups_, eps_);
  }
  Shape output_shape(const Shape& input) const override;

 private:
  std::int64_t groups_;
  double eps_;
  Variable weight_, bias_;
};

// The arguments of the kernels; images are [N,C,pixels].
struct GroupNormSizes {
  std::int64_t n, channels, pixels, groups;
  std::int64_t group_channels() const { return channels / groups; }
  std::int64_t group_elements() const { return group_channels() * pixels; }
};
struct GroupNormArgs {
  GroupNormSizes size;
  Tensor x, weight, bias;
  double eps;
  Tensor y;
  Tensor mean, inverse;  // f64 [N groups]; undefined: not needed
};
struct GroupNormGradientArgs {
  GroupNormSizes size;
  Tensor dy, x, weight, mean, inverse;
  Tensor sums;                // scratch memory, f64 [2,N,C]: of dy, and of dy u
  Tensor dx, dweight, dbias;  // assigned; undefined: not needed
};
extern CONVSCOPE_API KernelSlot<void(const GroupNormArgs&)> group_norm_kernel;
extern CONVSCOPE_API KernelSlot<void(const GroupNormGradientArgs&)> group_norm_gradient_kernel;

}  // namespace convscope
