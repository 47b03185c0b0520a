// SPDX-License-Identifier: Apache-2.0
// mask.h: which weights of a layer take part.
//
// Shapes      w [K,...] -> w * keep, the same shape; keep f32, 1 takes part, 0 does not
// Formula     y = w keep
//             dw = dy keep (masked: a weight that is out gets no gradient), or
//             dw = dy      (dense: it is trained on as if it took part, "straight through")
// Buffers     keep
// Usage       auto mask = std::make_shared<Mask>(layer.weight().value());
//             layer.add_weight_transform("mask", mask);
#pragma once

#include <string>
#include <string_view>

#include "framework/autograd/operation.h"
#include "framework/kernel_slot.h"
#include "layers/module.h"

namespace convscope {

class CONVSCOPE_API Mask final : public Module {
 public:
  explicit Mask(const Tensor& weight);  // keeps all
  std::string kind() const override { return "mask"; }
  Variable forward(const Variable& w) override;
  Shape output_shape(const Shape& input) const override { return input; }
  int describe(PlanGraph& graph, int w) override;

  const Tensor& keep() const { return keep_; }  // f32, on the CPU as well as on the weight's device
  void set_keep(const Tensor& keep) const { keep_.copy_from(keep); }

  void set_dense_gradient(bool dense) { dense_gradient_ = dense; }
  // While on, each backward leaves dy, the gradient as if all weights took part, in
  // observed_gradient(): RigL chooses by it what grows.
  void observe_gradient(bool on);
  const Tensor& observed_gradient() const { return observed_; }

 private:
  void moved_to(Device device) override;
  Ref<const Operation> operation() const;

  Tensor keep_;
  Tensor observed_;  // undefined until it is asked for
  bool dense_gradient_ = false;
  bool observing_ = false;
};

// y = x keep, of several tensors at once: a device launches one kernel for all of them.
struct MaskedTensor {
  Tensor x, keep, y;
};
extern CONVSCOPE_API KernelSlot<void(const MaskedTensor* all, int count)> mask_kernel;

// Whether a tensor of a checkpoint is a mask's: "c1.mask.keep".
CONVSCOPE_API bool belongs_to_mask(std::string_view name);

}  // namespace convscope
