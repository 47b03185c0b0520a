// SPDX-License-Identifier: Apache-2.0
// conv2d_op.h: a convolution in a planned step, with what stands behind it: in inference a batch
// norm folded into its weights, the residual of a block, a ReLU.
#pragma once

#include <array>
#include <optional>

#include "layers/conv2d/select.h"
#include "layers/plan/batch_norm_op.h"
#include "layers/plan/plan_builder.h"

namespace convscope {

class CONVSCOPE_API Conv2dOp final : public PlanOp {
 public:
  Conv2dOp(const Conv2dProblem& problem, Variable weight, Variable bias, const Conv2dPolicy& policy,
           const std::array<Conv2dChoice, 3>& choices)
      : problem_(problem),
        weight_(std::move(weight)),
        bias_(std::move(bias)),
        policy_(policy),
        choices_(choices) {}

  std::string text() const override;
  bool absorb(const PlanGraph& graph, PlanOp& next) override;
  void forward(PlanBuilder& builder) override;
  void backward(PlanBuilder& builder) override;

  const Conv2dProblem& problem() const { return problem_; }
  const Variable& weight() const { return weight_; }
  const Variable& bias() const { return bias_; }
  const Conv2dPolicy& policy() const { return policy_; }
  const Conv2dChoice& choice(Direction direction) const {
    return choices_[static_cast<std::size_t>(direction)];
  }
  bool relu() const { return relu_; }
  // Neither a batch norm nor a residual has been taken over.
  bool is_plain() const { return !norm_ && !residual_; }

 private:
  // Where w and b lie: the layer's own, or what the prologue has made of them.
  struct Weights {
    const void* w;
    const void* b;  // may be null
  };
  Weights weights(PlanBuilder& builder);

  Conv2dProblem problem_;
  Variable weight_, bias_;
  Conv2dPolicy policy_;
  std::array<Conv2dChoice, 3> choices_;
  std::optional<BatchNormFold> norm_;  // inference only
  bool residual_ = false;              // inputs[1] is added
  bool relu_ = false;
};

}  // namespace convscope
