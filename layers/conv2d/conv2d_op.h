// SPDX-License-Identifier: Apache-2.0
// conv2d_op.h: a convolution in a planned step, with what stands behind it: in inference a batch
// norm folded into its weights, the residual of a block, a ReLU.
#pragma once

#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "layers/conv2d/select.h"
#include "layers/plan/batch_norm_op.h"
#include "layers/plan/conv2d_calls.h"

namespace convscope {

// What runs one direction.
struct Conv2dForm {
  Conv2dChoice choice;         // without an algorithm: nobody asks for this direction
  bool in_blocks = false;      // from the blocks of SparseWeights
  std::string why_dense = {};  // where there are blocks: "at density 0.45 block_sparse is ..."
  double blocks_ms = 0;        // what it is estimated at from blocks
};
using Conv2dForms = std::array<Conv2dForm, 3>;  // by direction

// The faster one by estimate of the dense form that the layer's policy gives and of the blocks,
// where the policy leaves it open. `sparse` may be null.
Conv2dForm choose_form(Conv2dChoices& of_layer, const SparseWeights* sparse,
                       const Conv2dProblem& problem, Direction direction, Device device,
                       WeightUse use);

// Inputs: x, w, b if there is one, and the residual if one has been taken over. w and b are values
// of the graph: parameters, or what masks and quantisers make of them.
class CONVSCOPE_API Conv2dOp final : public PlanOp {
 public:
  // `forms` for the problem, in the layout that it says; the choices of the layer when its images
  // may lie in another layout.
  Conv2dOp(const Conv2dProblem& problem, bool has_bias, Conv2dForms forms,
           Ref<Conv2dChoices> of_layer = {}, WeightUse use = WeightUse::once,
           Ref<SparseWeights> sparse = {})
      : problem_(problem),
        has_bias_(has_bias),
        forms_(std::move(forms)),
        of_layer_(std::move(of_layer)),
        sparse_(std::move(sparse)),
        use_(use) {}

  std::string text() const override;
  bool absorb(const PlanGraph& graph, PlanOp& next) override;
  void forward(PlanBuilder& builder) override;
  void backward(PlanBuilder& builder) override;
  std::vector<RanKernel> kernels(const PlanGraph& graph) const override;
  std::optional<double> layout_ms(const PlanGraph& graph, ActivationLayout layout) const override;
  void set_layout(const PlanGraph& graph, ActivationLayout layout) override;
  DType wants_halves() const override {
    return problem_.layout == ActivationLayout::channels_last ? problem_.dtype : DType::f32;
  }

  bool may_gain_channels_last(const PlanGraph& graph) const override;
  FactorsRead would_read_factors(const PlanGraph& graph) const override;
  bool reads_factors(const PlanGraph& graph, std::size_t input) const override;
  bool reads_gradient_factors(const PlanGraph& graph) const override;
  // Somebody asks for dx and for dw, so that one kernel may make them together.
  void want_both() { wants_both_ = true; }

  // Of a layer of half precision: halves with their channels last (README.md). A chain may take its
  // place as long as layouts are not chosen.
  const Conv2dProblem& problem() const { return problem_; }
  ValueId x() const { return inputs[0]; }
  ValueId weight() const { return inputs[1]; }
  ValueId bias() const { return has_bias_ ? inputs[2] : kNoValue; }
  // What the layer's policy says of a direction: "auto", "int8_gemm,auto".
  const std::string& policy(Direction direction) const {
    return of_layer_ ? of_layer_->policy().of(direction) : choice(direction).word;
  }
  // Without an algorithm: nobody asks for this direction.
  const Conv2dChoice& choice(Direction direction) const { return form(direction).choice; }
  // What a direction that is asked for is estimated at, as it is chosen.
  double chosen_ms(Direction direction) const {
    return form_ms(form(direction), problem_, direction);
  }
  bool relu() const { return relu_; }
  float most() const { return most_; }  // of the ReLU
  const std::optional<BatchNormFold>& norm() const { return norm_; }
  ValueId residual() const { return residual_at_ > 0 ? inputs[residual_at_] : kNoValue; }
  // The blocks that a mask keeps; may be null.
  const Ref<SparseWeights>& sparse() const { return sparse_; }
  // Its policy asks for blocked images, which no chain has.
  bool wants_blocks() const { return of_layer_ && of_layer_->policy().layout == "blocked"; }
  // Neither a batch norm nor a residual nor a ReLU with an upper bound has been taken over.
  bool is_plain() const { return !norm_ && residual_at_ == 0 && std::isinf(most_); }

 private:
  const Conv2dForm& form(Direction direction) const {
    return forms_[static_cast<std::size_t>(direction)];
  }
  // What the chosen algorithm is asked to compute: with dense weights or with blocks.
  Conv2dWork work(Direction direction) const {
    Conv2dWork out{choice(direction).algorithm, problem_, direction};
    if (!form(direction).in_blocks) return out;
    out.problem.weight_format = sparse_->format();
    out.blocks = sparse_;
    return out;
  }
  // Where w and b lie: values of the graph, or what the prologue has made of them.
  struct Weights {
    Tensor w;         // undefined: only the prepared ones are left
    Tensor b;         // may be undefined
    Tensor prepared;  // undefined: nothing is prepared, or in each call
  };
  // f32 images, multiplied as tf32, with an algorithm that may change with their layout.
  bool is_tf32() const {
    return problem_.math == MathMode::tf32 && problem_.dtype == DType::f32 && of_layer_ && !sparse_;
  }
  void check_layout(Device device) const;
  // What a direction would run with its channels last, as far as nobody has measured; null: none.
  const Conv2dAlgorithm* card_in_channels_last(const PlanGraph& graph, Direction direction) const;
  // It is asked for, and reads factors where they are given.
  bool takes_factors(Direction direction) const;
  // The forward that leaves mean and spread of its channels; null: nobody asks for them, or the
  // card has none.
  const ForwardMoments* forward_moments() const;
  // The kernel that makes dx and dw; null: each has its own.
  const JointBackward* joint_backward() const;
  double form_ms(const Conv2dForm& form, const Conv2dProblem& problem, Direction direction) const;
  Weights weights(PlanBuilder& builder);
  void emit_fold(PlanBuilder& builder, Slot w, Slot b) const;
  Tensor images_or_value(PlanBuilder& builder) const;

  Conv2dProblem problem_;
  bool has_bias_;
  Conv2dForms forms_;
  Ref<Conv2dChoices> of_layer_;
  Ref<SparseWeights> sparse_;  // may be null
  WeightUse use_;
  bool wants_both_ = false;
  bool feeds_norm_ = false;            // in training a batch norm alone reads y
  std::optional<BatchNormFold> norm_;  // inference only
  std::size_t residual_at_ = 0;        // inputs[residual_at_] is added; 0: none
  bool relu_ = false;
  float most_ = std::numeric_limits<float>::infinity();  // of the ReLU
};

}  // namespace convscope
