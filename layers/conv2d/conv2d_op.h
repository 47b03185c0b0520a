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

// Inputs: x, w, b if there is one, and the residual if one has been taken over. w and b are values of
// the graph: parameters, or what masks and quantisers make of them.
class CONVSCOPE_API Conv2dOp final : public PlanOp {
 public:
  Conv2dOp(const Conv2dProblem& problem, bool has_bias, const Conv2dPolicy& policy,
           const std::array<Conv2dChoice, 3>& choices)
      : problem_(problem), has_bias_(has_bias), policy_(policy), choices_(choices) {}

  std::string text() const override;
  bool absorb(const PlanGraph& graph, PlanOp& next) override;
  void forward(PlanBuilder& builder) override;
  void backward(PlanBuilder& builder) override;
  std::vector<RanKernel> kernels(const PlanGraph& graph) const override;

  const Conv2dProblem& problem() const { return problem_; }
  ValueId x() const { return inputs[0]; }
  ValueId weight() const { return inputs[1]; }
  ValueId bias() const { return has_bias_ ? inputs[2] : kNoValue; }
  const Conv2dPolicy& policy() const { return policy_; }
  const Conv2dChoice& choice(Direction direction) const {
    return choices_[static_cast<std::size_t>(direction)];
  }
  bool relu() const { return relu_; }
  // Neither a batch norm nor a residual has been taken over.
  bool is_plain() const { return !norm_ && residual_at_ == 0; }

 private:
  // Where w and b lie: values of the graph, or what the prologue has made of them.
  struct Weights {
    Tensor w;
    Tensor b;  // may be undefined
  };
  Weights weights(PlanBuilder& builder);
  Tensor images_or_value(PlanBuilder& builder) const;

  Conv2dProblem problem_;
  bool has_bias_;
  Conv2dPolicy policy_;
  std::array<Conv2dChoice, 3> choices_;
  std::optional<BatchNormFold> norm_;  // inference only
  std::size_t residual_at_ = 0;        // inputs[residual_at_] is added; 0: none
  bool relu_ = false;
};

}  // namespace convscope
