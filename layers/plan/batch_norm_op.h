// SPDX-License-Identifier: Apache-2.0
// batch_norm_op.h: batch_norm2d in a compiled step.
//
// Training    batch statistics, then y = relu((x - mean[c]) factor[c] + shift[c] + residual). The
//             residual and the ReLU are present if the following operations were absorbed. Each
//             direction is one call (batch_norm2d_fused.h).
// Inference   the preceding convolution absorbs the batch norm: `factor` goes into the weights,
//             `shift` into the bias. Without a preceding convolution, y = (x - mean[c]) factor[c] +
//             shift[c].
#pragma once

#include <limits>

#include "framework/graph/emitter.h"

namespace convscope {

// Batch norm in eval mode: y = (x - mean) / sqrt(variance + eps) weight + bias.
struct BatchNormFold {
  Variable weight, bias;
  Tensor mean, variance;  // the running ones, f32 [C]
  double eps = 0;
};

class CONVSCOPE_API BatchNormOp final : public PlanOp {
 public:
  BatchNormOp(const BatchNormFold& parts, double momentum) : parts_(parts), momentum_(momentum) {}
  const BatchNormFold& fold() const { return parts_; }
  bool is_plain() const { return !residual_ && !relu_; }

  std::string text() const override;
  bool absorb(const Graph& graph, PlanOp& next) override;
  void forward(Emitter& builder) override;
  void backward(Emitter& builder) override;
  std::optional<double> layout_ms(const Graph&, ActivationLayout layout) const override {
    return same_in_both(layout);
  }
  bool would_write_operands(const Graph& graph) const override { return graph.training(); }

 private:
  void emit_running_factors(Emitter& builder, const Tensor& factor, const Tensor& shift);
  // Emit calls on NHWC images, fp16/bf16 or f32 (batch_norm2d_half.h).
  void train_nhwc(Emitter& builder);
  void backward_nhwc(Emitter& builder);

  BatchNormFold parts_;
  double momentum_;
  bool residual_ = false;  // inputs[1] is added
  bool relu_ = false;
  float most_ = std::numeric_limits<float>::infinity();  // of the ReLU
  Slot mean_ = kNoSlot, inverse_deviation_ = kNoSlot;    // f64 [C]
  Slot factors_ = kNoSlot;                               // for NHWC: f32 [3,Cp]
};

}  // namespace convscope
