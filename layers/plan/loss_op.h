// SPDX-License-Identifier: Apache-2.0
// loss_op.h: the last operation of a compiled training step. It computes the mean softmax
// cross-entropy of logits [N,classes] and the labels of the batch, and counts the images whose
// largest logit is that of their label. A linear layer absorbs this operation where one kernel
// computes both
// (linear_fused.h).
#pragma once

#include "framework/kernel_slot.h"
#include "framework/graph/emitter.h"

namespace convscope {

class CONVSCOPE_API LossOp final : public PlanOp {
 public:
  std::string text() const override { return "softmax_cross_entropy"; }
  void forward(Emitter& builder) override;
  void backward(Emitter& builder) override;

 private:
  Slot probabilities_ = kNoSlot;
};

// Sets out i32 [1] to the number of equal elements of predicted i32 [N] and labels i32 [N].
extern CONVSCOPE_API
    KernelSlot<void(const Tensor& predicted, const Tensor& labels, const Tensor& out)>
        count_equal_kernel;
// Multiplies x by *factor, a number on the device of x.
extern CONVSCOPE_API KernelSlot<void(const double* factor, const Tensor& x)> multiply_by_kernel;

}  // namespace convscope
