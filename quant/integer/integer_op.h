// SPDX-License-Identifier: Apache-2.0
// integer_op.h: an integer convolution or linear layer in an inference graph. It multiplies codes
// by codes. Then it applies batch norm, residual, activation and the rounding of the next quantiser
// to the accumulators.
#pragma once

#include <limits>
#include <optional>

#include "layers/batch_norm2d/batch_norm_op.h"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/sparse_weights.h"
#include "quant/integer/code_ops.h"

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

class IntegerOp final : public Operation {
 public:
  static constexpr std::string_view kKind = "integer";
  explicit IntegerOp(IntegerLayer parts) : Operation("integer"), it_(std::move(parts)) {}
  const IntegerLayer& parts() const { return it_; }
  std::vector<ValueId> all_inputs() const;

  std::string text() const override;
  std::vector<RanKernel> kernels(const Graph& graph) const override;
  // Allows only NCHW16c, the layout of y in f32.
  std::optional<Format> format(const Graph&, ActivationLayout layout) const override {
    return codes_format(layout, ActivationLayout::nchw16c);
  }
  void forward(Emitter& emitter) override;
  void backward(Emitter&) override {}

  // f64 scales and offsets of the accumulators; kNoSlot: none.
  struct Scales {
    Slot x_step, w_steps, y_step = kNoSlot, residual_step = kNoSlot, b = kNoSlot;
    Slot w_grid_steps = kNoSlot;  // steps that round w, without the batch norm
  };
  // Emits scales, or codes; call both in Emitter::prologue().
  Scales emit_scales(Emitter& emitter) const;
  void emit_codes(Emitter& emitter, const Scales& scales, Slot codes) const;  // i8, of w

 private:
  // The results of the prologue.
  struct Constants {
    Scales scales;
    Slot prepared = kNoSlot, codes = kNoSlot;  // of w, one of the two
  };
  Tensor nchw16c_residual(Emitter& emitter) const;
  Constants emit_constants(Emitter& emitter) const;
  Slot emit_bias_and_scales(Emitter& emitter, Slot w_steps, Slot scales) const;
  void emit_block_codes(Emitter& emitter, const Scales& scales, Slot codes) const;
  void emit_weights(Emitter& emitter, Constants& out) const;

  IntegerLayer it_;
};

}  // namespace convscope
