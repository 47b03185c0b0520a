// SPDX-License-Identifier: Apache-2.0
// integer_constants.h: the operations of an integer graph whose results depend on parameters only.
// They run once, until the parameters change: step sizes, the scale of each output channel, and the
// codes of weights. Rule, step sizes and rounding are those of the fake quantiser (lsq.h).
#pragma once

#include "framework/graph/emitter.h"
#include "framework/sparse/sparse_weights.h"
#include "layers/batch_norm2d/batch_norm_op.h"
#include "quant/lsq.h"

namespace convscope {

// Computes the step sizes of a quantiser, within their bounds.
// Input: the parameter, s or log s. Output: s, f64 [number of step sizes].
class StepSizesOp final : public Operation {
 public:
  explicit StepSizesOp(const LsqParts& lsq) : Operation("step sizes"), lsq_(lsq) {}
  TensorDesc bind(Graph& graph) override;
  void forward(Emitter& emitter) override;
  void backward(Emitter&) override {}

 private:
  LsqParts lsq_;
};

// Computes the scale and the bias of each output channel. A batch norm is folded in double: with
// g = gamma / sqrt(variance + eps), s_w[k] becomes s_w[k] g[k], and b[k] becomes
// (b[k] - mean[k]) g[k] + beta[k]. The weights keep their trained codes.
// Inputs: the step sizes of w, f64 [1] or [K]; the bias, f32 [K], if there is one.
// Outputs: the scales, f64 [K]; the bias, f64 [K], if there is a bias or a batch norm.
class ChannelScalesOp final : public Operation {
 public:
  ChannelScalesOp(std::int64_t channels, std::optional<BatchNormFold> norm)
      : Operation("scale of each channel"), channels_(channels), norm_(std::move(norm)) {}
  std::string text() const override { return cat(kind(), norm_ ? " with batch_norm2d" : ""); }
  TensorDesc bind(Graph& graph) override;
  void forward(Emitter& emitter) override;
  void backward(Emitter&) override {}

 private:
  std::int64_t channels_;
  std::optional<BatchNormFold> norm_;
};

// Rounds weights to the codes of the fake quantiser.
// Inputs: w, f32 [K,...]; its step sizes, f64 [1] or [K]. Output: codes i8, whose scale is the
// value `scales`. With `blocks` only the codes of the kept blocks are computed and stored.
class WeightCodesOp final : public Operation {
 public:
  WeightCodesOp(const IntegerGrid& grid, ValueId scales, Ref<SparseWeights> blocks)
      : Operation("codes of w"), grid_(grid), scales_(scales), blocks_(std::move(blocks)) {}
  TensorDesc bind(Graph& graph) override;
  void forward(Emitter& emitter) override;
  void backward(Emitter&) override {}

 private:
  IntegerGrid grid_;
  ValueId scales_;
  Ref<SparseWeights> blocks_;  // may be null
};

}  // namespace convscope
