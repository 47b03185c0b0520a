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
  // Returns memory for the prepared weights of one call; null: the algorithm reads w directly.
  void* prepared_in_step(Emitter& emitter, Direction direction) const;
  // Returns the tensors that the algorithms read. If x is the step's input, its address is known
  // only when the step runs; x is then undefined, except with images_as_tensor.
  DeformConv2dTensors tensors(Emitter& emitter, bool backward, bool images_as_tensor) const;
  // Returns whether execute_deform_conv2d() runs the direction, in memory of the allocator: eager
  // calls, and calls that compare two algorithms.
  bool allocates(const Emitter& emitter, Direction direction) const {
    return emitter.is_eager() || choice(direction).checked_by != nullptr;
  }
  void execute(Emitter& emitter, Direction direction, const Operands& operands) const;
  void check_operands(const Graph& graph) const;
  Tensor operand(Emitter& emitter, std::size_t input, bool backward) const;
  void backward_data(Emitter& emitter, Slot& dy_rounded);
  void backward_weight(Emitter& emitter, Slot& dy_rounded);

  DeformConv2dParams params_;
  bool has_mask_, has_bias_;
  Ref<DeformConv2dChoices> layer_choices_;
  DeformConv2dProblem problem_;
  std::array<DeformConv2dChoice, 3> choices_;  // no algorithm: the direction is not needed
  WeightUse use_ = WeightUse::once;
  mutable Slot rounded_[4] = {kNoSlot, kNoSlot, kNoSlot,
                              kNoSlot};  // of inputs 0 to 3, in half precision
};

}  // namespace convscope
