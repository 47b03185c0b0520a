// SPDX-License-Identifier: Apache-2.0
// linear_cross_entropy.h: the last linear layer and softmax cross-entropy in one kernel call
// (LinearLoss in linear_fused.h), which also writes the gradient of the logits.
#pragma once

#include <memory>

#include "layers/linear/linear.h"

namespace convscope {

// Inputs: those of the linear layer, then the labels. Outputs: those of the loss.
class LinearCrossEntropy final : public Operation {
 public:
  static constexpr std::string_view kKind = "linear_cross_entropy";
  // Takes the linear operation; its output, the logits, is no longer stored.
  explicit LinearCrossEntropy(std::unique_ptr<Operation> linear);

  std::string text() const override;
  std::vector<RanKernel> kernels(const Graph& graph) const override;
  void forward(Emitter& emitter) override;
  void backward(Emitter& emitter) override { linear().backward(emitter); }

  LinearParts parts() const { return *linear_parts(linear()); }

 private:
  Operation& linear() const;

  std::unique_ptr<Operation> linear_;
};

}  // namespace convscope
