// SPDX-License-Identifier: Apache-2.0
// deform_conv2d_op.h: a deformable convolution in a compiled step: the functions of the chosen
// algorithms with prepared arguments.
#pragma once

#include <array>
#include <optional>

#include "layers/deform_conv2d/deform_conv2d.h"
#include "framework/graph/emitter.h"

namespace convscope {

// Inputs: x, w, offset, and the mask and b if they are used.
class CONVSCOPE_API DeformConv2dOp final : public PlanOp {
 public:
  // Takes one choice for each direction; a choice without an algorithm marks a direction that is
  // not needed. `layer_choices` holds the choices of the layer, also for images in other layouts.
  DeformConv2dOp(const DeformConv2dProblem& problem, bool has_bias,
                 std::array<DeformConv2dChoice, 3> choices, Ref<DeformConv2dChoices> layer_choices,
                 WeightUse use)
      : problem_(problem),
        has_bias_(has_bias),
        choices_(std::move(choices)),
        layer_choices_(std::move(layer_choices)),
        use_(use) {}

  std::string text() const override;
  void forward(Emitter& builder) override;
  void backward(Emitter& builder) override;
  std::vector<RanKernel> kernels(const Graph& graph) const override;
  std::optional<double> layout_ms(const Graph& graph, ActivationLayout layout) const override;
  void set_layout(const Graph& graph, ActivationLayout layout) override;
  bool reads_plain(std::size_t input) const override { return input >= 2; }  // offset and mask

 private:
  ValueId x() const { return inputs[0]; }
  ValueId weight() const { return inputs[1]; }
  ValueId offset() const { return inputs[2]; }
  ValueId mask() const { return problem_.mask ? inputs[3] : kNoValue; }
  ValueId bias() const { return has_bias_ ? inputs.back() : kNoValue; }
  const DeformConv2dChoice& choice(Direction direction) const {
    return choices_[static_cast<std::size_t>(direction)];
  }
  // Returns memory for the prepared weights of one call; null: the algorithm reads w directly.
  void* prepared_in_step(Emitter& builder, Direction direction) const;
  // Returns the tensors that the algorithms read. If x is the step's input, its address is known
  // only when the step runs; x is then undefined, except with images_as_tensor.
  DeformConv2dTensors tensors(Emitter& builder, bool images_as_tensor) const;
  void run_checked(Emitter& builder, Direction direction, const Operands& operands) const;
  void backward_data(Emitter& builder);
  void backward_weight(Emitter& builder);

  DeformConv2dProblem problem_;
  bool has_bias_;
  std::array<DeformConv2dChoice, 3> choices_;
  Ref<DeformConv2dChoices> layer_choices_;
  WeightUse use_;
};

}  // namespace convscope
