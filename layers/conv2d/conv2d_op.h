// SPDX-License-Identifier: Apache-2.0
// conv2d_op.h: a convolution in a compiled step, with the operations that it absorbs: in inference
// a batch norm folded into its weights, the residual of a block, a ReLU.
#pragma once

#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "layers/conv2d/select.h"
#include "layers/plan/batch_norm_op.h"
#include "layers/plan/conv2d_calls.h"

namespace convscope {

// The choice for one direction: a dense algorithm or block-sparse weights.
struct Conv2dForm {
  Conv2dChoice choice;         // without an algorithm: this direction is not needed
  bool in_blocks = false;      // computed from the blocks of SparseWeights
  std::string why_dense = {};  // why blocks are not used: "at density 0.45 ..."
  double blocks_ms = 0;        // estimated time of the computation with blocks
};
using Conv2dForms = std::array<Conv2dForm, 3>;  // by direction

// Chooses between the dense algorithm of the layer's policy and block-sparse weights. Takes the
// implementation with the smaller estimate, unless the policy names an algorithm. `sparse` may be
// null.
Conv2dForm choose_form(Conv2dChoices& layer_choices, const SparseWeights* sparse,
                       const Conv2dProblem& problem, Direction direction, Device device,
                       WeightUse use);

// The inputs are x, w, b if the layer has a bias, and the residual if one has been absorbed. w and
// b are values of the graph: parameters, or the results of masks and quantisers.
class CONVSCOPE_API Conv2dOp final : public PlanOp {
 public:
  // Creates the op. `forms` has the chosen implementation of each direction for the problem in its
  // layout. `layer_choices` are the layer's choices, which are read again when the layout of the
  // images changes.
  Conv2dOp(const Conv2dProblem& problem, bool has_bias, Conv2dForms forms,
           Ref<Conv2dChoices> layer_choices = {}, WeightUse use = WeightUse::once,
           Ref<SparseWeights> sparse = {})
      : problem_(problem),
        has_bias_(has_bias),
        forms_(std::move(forms)),
        layer_choices_(std::move(layer_choices)),
        sparse_(std::move(sparse)),
        use_(use) {}

  std::string text() const override;
  bool absorb(const Graph& graph, PlanOp& next) override;
  void forward(Emitter& builder) override;
  void backward(Emitter& builder) override;
  std::vector<RanKernel> kernels(const Graph& graph) const override;
  std::optional<double> layout_ms(const Graph& graph, ActivationLayout layout) const override;
  void set_layout(const Graph& graph, ActivationLayout layout) override;
  DType preferred_half_type() const override {
    return problem_.layout == ActivationLayout::nhwc ? problem_.dtype : DType::f32;
  }

  bool may_gain_nhwc(const Graph& graph) const override;
  OperandsRead would_read_operands(const Graph& graph) const override;
  bool reads_operands(const Graph& graph, std::size_t input) const override;
  bool reads_gradient_operands(const Graph& graph) const override;
  // Records that dx and dw are both needed, so that one kernel may compute both.
  void want_both() { wants_both_ = true; }

  // Returns the problem. A layer in half precision has a problem in fp16/bf16 and NHWC (README.md).
  // A chain may still replace the operation until the layouts are chosen.
  const Conv2dProblem& problem() const { return problem_; }
  ValueId x() const { return inputs[0]; }
  ValueId weight() const { return inputs[1]; }
  ValueId bias() const { return has_bias_ ? inputs[2] : kNoValue; }
  // Returns the layer's policy for a direction, such as "auto" or "int8_gemm,auto".
  const std::string& policy(Direction direction) const {
    return layer_choices_ ? layer_choices_->policy().of(direction) : choice(direction).word;
  }
  // Returns the choice for a direction; it has no algorithm when the direction is not needed.
  const Conv2dChoice& choice(Direction direction) const { return form(direction).choice; }
  // Returns the estimated time of the chosen implementation; the direction must be needed.
  double chosen_ms(Direction direction) const {
    return form_ms(form(direction), problem_, direction);
  }
  bool relu() const { return relu_; }
  float most() const { return most_; }  // upper bound of the ReLU
  const std::optional<BatchNormFold>& norm() const { return norm_; }
  ValueId residual() const { return residual_at_ > 0 ? inputs[residual_at_] : kNoValue; }
  // Returns the block-sparse weights; may be null.
  const Ref<SparseWeights>& sparse() const { return sparse_; }
  // Returns whether the layer's policy requires NCHW16c images, which no chain supports.
  bool prefers_nchw16c() const {
    return layer_choices_ && layer_choices_->policy().layout == "nchw16c";
  }
  // Returns true when no batch norm, residual or ReLU with an upper bound has been absorbed.
  bool is_plain() const { return !norm_ && residual_at_ == 0 && std::isinf(most_); }

 private:
  const Conv2dForm& form(Direction direction) const {
    return forms_[static_cast<std::size_t>(direction)];
  }
  // Returns the work of the chosen algorithm, with dense weights or with blocks.
  Conv2dWork work(Direction direction) const {
    Conv2dWork out{choice(direction).algorithm, problem_, direction};
    if (!form(direction).in_blocks) return out;
    out.problem.weight_format = sparse_->format();
    out.blocks = sparse_;
    return out;
  }
  // Where the operation reads w and b: values of the graph, or results of the prologue.
  struct Weights {
    Tensor w;         // undefined: only the prepared weights are kept
    Tensor b;         // may be undefined
    Tensor prepared;  // undefined: not prepared, or prepared in each call
  };
  // Returns whether f32 images are multiplied as tf32 by an algorithm that depends on the layout of
  // the images.
  bool is_tf32() const {
    return problem_.math == MathMode::tf32 && problem_.dtype == DType::f32 && layer_choices_ &&
           !sparse_;
  }
  void check_layout(Device device) const;
  // Returns the algorithm of a direction in NHWC, without measuring; null when there is none.
  const Conv2dAlgorithm* nhwc_algorithm(const Graph& graph, Direction direction) const;
  // Returns whether the direction is needed and its algorithm can read fp16 operands.
  bool takes_operands(Direction direction) const;
  // Returns the forward kernel that also computes mean and variance of y's channels. Returns null
  // when they are not needed or the algorithm has no such kernel.
  const ForwardMoments* forward_moments() const;
  // Returns the kernel that computes both dx and dw; null when two kernels compute them.
  const JointBackward* joint_backward() const;
  double form_ms(const Conv2dForm& form, const Conv2dProblem& problem, Direction direction) const;
  Weights weights(Emitter& builder);
  void emit_fold(Emitter& builder, Slot w, Slot b) const;
  Tensor images_or_value(Emitter& builder) const;

  Conv2dProblem problem_;
  bool has_bias_;
  Conv2dForms forms_;
  Ref<Conv2dChoices> layer_choices_;
  Ref<SparseWeights> sparse_;  // may be null
  WeightUse use_;
  bool wants_both_ = false;
  bool feeds_norm_ = false;            // in training: only a batch norm reads y
  std::optional<BatchNormFold> norm_;  // inference only
  std::size_t residual_at_ = 0;        // inputs[residual_at_] is added; 0: none
  bool relu_ = false;
  float most_ = std::numeric_limits<float>::infinity();  // upper bound of the ReLU
};

}  // namespace convscope
