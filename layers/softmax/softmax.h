// SPDX-License-Identifier: Apache-2.0
// softmax.h: turns numbers into probabilities along one axis.
//
// Shapes      x [any] -> y, the same shape; f32 or f64
// Formula     y = exp(x - m) / sum of exp(x - m) over the axis, with the maximum m over the axis
// Backward    dx = y (dy - sum of dy y over the axis); saved: y
// Parameters  axis  default 1 (channels, or features)
// Usage       {type: softmax}. The loss cross_entropy takes the numbers before a softmax
#pragma once

#include "framework/autograd/variable.h"
#include "framework/kernel_slot.h"
#include "layers/module.h"

namespace convscope {

// Throws unless 0 <= axis < rank of x.
CONVSCOPE_API Variable softmax(const Variable& x, int axis);

class CONVSCOPE_API Softmax final : public Module {
 public:
  explicit Softmax(int axis) : axis_(axis) {}
  std::string kind() const override { return "softmax"; }
  int axis() const { return axis_; }
  Variable forward(const Variable& x) override { return softmax(x, axis_); }
  Shape output_shape(const Shape& input) const override;

 private:
  int axis_;
};

// x as [outer, size, inner], with the axis in the middle.
struct SoftmaxSizes {
  std::int64_t outer, size, inner;
};
// Kernels; they assign y and dx.
extern CONVSCOPE_API KernelSlot<void(const SoftmaxSizes&, const Tensor& x, const Tensor& y)>
    softmax_axis_kernel;
extern CONVSCOPE_API
    KernelSlot<void(const SoftmaxSizes&, const Tensor& y, const Tensor& dy, const Tensor& dx)>
        softmax_axis_gradient_kernel;

}  // namespace convscope
