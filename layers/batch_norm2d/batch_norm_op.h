// SPDX-License-Identifier: Apache-2.0
// batch_norm_op.h: batch norm of images or rows as an operation (framework/graph/operation.h).
//
// Training    batch statistics, then y = relu((x - mean[c]) factor[c] + shift[c] + residual). The
//             residual and the ReLU are present if a compiled step has fused the operations that
//             follow. Each direction is one call (batch_norm2d_fused.h).
// Eval        y = (x - mean[c]) factor[c] + shift[c] with the running statistics. In a compiled
//             step the preceding convolution takes the batch norm over: `factor` goes into the
//             weights, `shift` into the bias.
// Rows        [n,C] run the same operation with other kernels (BatchNormPasses), without fusions
#pragma once

#include <limits>

#include "framework/graph/emitter.h"
#include "layers/batch_norm2d/batch_norm2d.h"
#include "layers/batch_norm2d/batch_norm2d_fused.h"

namespace convscope {

// The kernels for one kind of input.
struct BatchNormPasses {
  const char* name;  // of the operation
  int rank;          // of x: 4, or 2 for rows
  void (*train)(const BatchNormTrainArgs& args);
  void (*train_gradient)(const BatchNormTrainGradientArgs& args);
  const BatchNormApplySlot& apply;
  const BatchNormSumsSlot& sums;
  const BatchNormGradientSlot& gradient;
};
extern CONVSCOPE_API const BatchNormPasses batch_norm2d_passes;

// Batch norm in eval mode: y = (x - mean) / sqrt(variance + eps) weight + bias.
struct BatchNormFold {
  Variable weight, bias;  // undefined if they are computed in the graph
  Tensor mean, variance;  // the running ones, f32 [C]; undefined: none
  double eps = 0;
};

// Inputs: x, weight and bias [C], and the residual if there is one.
class CONVSCOPE_API BatchNormOp : public Operation {
 public:
  static constexpr std::string_view kKind = "batch_norm2d";
  // Creates the operation. With `trains` the statistics are those of the batch. They move the
  // running ones by `momentum`, and an eager call stores them in `statistics`, unless it is null.
  BatchNormOp(const Tensor& mean, const Tensor& variance, double eps, bool trains, double momentum,
              BatchNormStatistics* statistics = nullptr,
              const BatchNormPasses& passes = batch_norm2d_passes)
      : Operation(passes.name),
        passes_(passes),
        parts_{.weight = {}, .bias = {}, .mean = mean, .variance = variance, .eps = eps},
        trains_(trains),
        momentum_(momentum),
        statistics_(statistics) {}
  const BatchNormFold& fold() const { return parts_; }
  // Returns whether a convolution may take the operation over.
  bool can_fold() const {
    return !trains_ && !residual_ && !relu_ && parts_.weight.defined() && parts_.bias.defined();
  }

  std::string text() const override;
  TensorDesc bind(Graph& graph) override;
  void forward(Emitter& emitter) override;
  void backward(Emitter& emitter) override;
  std::optional<Format> format(const Graph& graph, ActivationLayout layout) const override;
  bool absorb(const Graph& graph, const Operation& next);

 private:
  ValueId residual() const { return residual_ ? inputs[3] : kNoValue; }
  Tensor residual_value(Emitter& emitter) const {
    return residual_ ? emitter.value(residual()) : Tensor();
  }
  Emitter::Target target_if_wanted(Emitter& emitter, ValueId value) const;
  void eval(Emitter& emitter);
  // Emit calls on NHWC images, fp16/bf16 or f32 (batch_norm2d_half.h).
  void train_nhwc(Emitter& emitter);
  void backward_nhwc(Emitter& emitter);
  // Emits the gradient of x with constant statistics, and the sums of the other gradients.
  void backward_eval(Emitter& emitter, Slot sum_dy, Slot sum_dy_x);
  void backward_train(Emitter& emitter, Slot sum_dy, Slot sum_dy_x);

  const BatchNormPasses& passes_;
  BatchNormFold parts_;
  bool trains_;
  double momentum_;
  BatchNormStatistics* statistics_;
  bool residual_ = false;  // inputs[3] is added
  bool relu_ = false;
  float most_ = std::numeric_limits<float>::infinity();  // of the ReLU
  Slot mean_ = kNoSlot, inverse_deviation_ = kNoSlot;    // f64 [C]
  Slot factors_ = kNoSlot;                               // for NHWC: f32 [3,Cp]
};

}  // namespace convscope
