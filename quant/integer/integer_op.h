// SPDX-License-Identifier: Apache-2.0
// integer_op.h: an integer convolution or linear layer in an inference graph. It multiplies codes
// by codes. Then it applies batch norm, residual, activation and the rounding of the next quantiser
// to the accumulators.
#pragma once

#include <limits>
#include <optional>

#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/sparse_weights.h"
#include "layers/plan/batch_norm_op.h"
#include "quant/integer/code_format.h"

namespace convscope {

// A linear layer is a convolution whose kernel covers the image.
struct IntegerLayer {
  Conv2dProblem problem;                       // with types and layout
  const Conv2dAlgorithm* algorithm = nullptr;  // supports it
  std::string kind;                            // "conv2d"
  CodeFormat x_format, w_format;
  std::optional<CodeFormat> y_format, residual_format;
  ValueId x = kNoValue;  // codes, or f32 images
  ValueId w = kNoValue;  // f32, of parameters
  ValueId b = kNoValue, residual = kNoValue;
  std::optional<BatchNormFold> norm;
  bool relu = false;
  float most = std::numeric_limits<float>::infinity();
  bool is_named = false;  // its policy names the algorithm, so chains must not replace it
  // The kept blocks of a pruned layer. problem.weight_format says whether the algorithm reads only
  // these blocks. If it reads all weights, why_dense is the reason.
  Ref<SparseWeights> sparse = {};
  std::string why_dense = {};
};

class IntegerOp final : public PlanOp {
 public:
  explicit IntegerOp(IntegerLayer parts) : it_(std::move(parts)) {}
  const IntegerLayer& parts() const { return it_; }
  std::vector<ValueId> all_inputs() const;

  std::string text() const override;
  std::vector<RanKernel> kernels(const Graph& graph) const override;
  bool reads_any_layout() const override { return true; }
  // Allows only NCHW16c, the layout of y in f32.
  std::optional<double> layout_ms(const Graph&, ActivationLayout layout) const override {
    if (layout != ActivationLayout::nchw16c) return std::nullopt;
    return 0.0;
  }
  void forward(Emitter& builder) override;
  void backward(Emitter&) override {}

  // f64 scales and offsets of the accumulators; kNoSlot: none.
  struct Scales {
    Slot x_step, w_steps, y_step = kNoSlot, residual_step = kNoSlot, b = kNoSlot;
    Slot w_grid_steps = kNoSlot;  // steps that round w, without the batch norm
  };
  // Emits scales, or codes; call both in Emitter::prologue().
  Scales emit_scales(Emitter& builder) const;
  void emit_codes(Emitter& builder, const Scales& scales, Slot codes) const;  // i8, of w

 private:
  // The results of the prologue.
  struct Constants {
    Scales scales;
    Slot prepared = kNoSlot, codes = kNoSlot;  // of w, one of the two
  };
  Tensor nchw16c_residual(Emitter& builder) const;
  Constants emit_constants(Emitter& builder) const;
  Slot emit_bias_and_scales(Emitter& builder, Slot w_steps, Slot scales) const;
  void emit_block_codes(Emitter& builder, const Scales& scales, Slot codes) const;
  void emit_weights(Emitter& builder, Constants& out) const;

  IntegerLayer it_;
};

}  // namespace convscope
