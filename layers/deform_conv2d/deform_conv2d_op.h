// SPDX-License-Identifier: Apache-2.0
// deform_conv2d_op.h: the deformable convolution as an operation (framework/graph/operation.h).
#pragma once

#include <array>
#include <optional>

#include "framework/graph/emitter.h"
#include "layers/deform_conv2d/deform_conv2d.h"

namespace convscope {

// Inputs: x, w, offset, and the mask and b if they are used.
class CONVSCOPE_API DeformConv2dOp final : public Operation {
 public:
  DeformConv2dOp(const DeformConv2dParams& params, bool mask, bool has_bias,
                 Ref<DeformConv2dChoices> choices)
      : Operation("deform_conv2d"),
        params_(params),
        has_mask_(mask),
        has_bias_(has_bias),
        layer_choices_(std::move(choices)) {}

  std::string text() const override;
  TensorDesc bind(Graph& graph) override;
  void forward(Emitter& emitter) override;
  void backward(Emitter& emitter) override;
  std::vector<RanKernel> kernels(const Graph& graph) const override;
  std::optional<Format> format(const Graph& graph, ActivationLayout layout) const override;
  void set_layouts(const Graph& graph) override;

 private:
  ValueId x() const { return inputs[0]; }
  ValueId weight() const { return inputs[1]; }
  ValueId offset() const { return inputs[2]; }
  ValueId mask() const { return has_mask_ ? inputs[3] : kNoValue; }
  ValueId bias() const { return has_bias_ ? inputs.back() : kNoValue; }
  const DeformConv2dChoice& choice(Direction direction) const {
    return choices_[static_cast<std::size_t>(direction)];
  }
  void check_operands(const Graph& graph) const;
  Operands operands(Emitter& emitter, Direction direction, const Tensor& dy, bool reads_weight);
  void emit(Emitter& emitter, Direction direction, const Operands& operands,
            const Tensor& kept_weights = {}) const;
  void backward_data(Emitter& emitter, const Tensor& dy);
  void backward_weight(Emitter& emitter, const Tensor& dy);

  DeformConv2dParams params_;
  bool has_mask_, has_bias_;
  Ref<DeformConv2dChoices> layer_choices_;
  DeformConv2dProblem problem_;
  std::array<DeformConv2dChoice, 3> choices_;  // no algorithm: the direction is not needed
  WeightUse use_ = WeightUse::once;
  // The rounded inputs 0 to 3, in half precision.
  Slot rounded_[4] = {kNoSlot, kNoSlot, kNoSlot, kNoSlot};
};

}  // namespace convscope
