// SPDX-License-Identifier: Apache-2.0
// conv2d_op.h: the convolution as an operation (framework/graph/operation.h), with the operations
// that it takes over in a compiled step: in inference a batch norm folded into its weights, the
// residual of a block, a ReLU.
#pragma once

#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "layers/batch_norm2d/batch_norm_op.h"
#include "layers/conv2d/conv2d.h"
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

// A convolution in an inference graph that multiplies codes by codes. The descriptions of its
// inputs and of its output have the scales (TensorDesc::quantization).
struct Conv2dOnCodes {
  std::string layer_kind = "conv2d";  // or "linear": a convolution whose kernel covers the image
  Conv2dProblem problem = {};         // with types and layout
  Conv2dForm form = {};               // of the forward pass
  Ref<SparseWeights> blocks = {};     // of a pruned weight; may be null
  bool is_named = false;    // the layer's policy names the algorithm, so chains must not replace it
  bool folds_norm = false;  // scales and bias contain those of a batch norm
  bool relu = false;
  float most = std::numeric_limits<float>::infinity();  // upper bound of the ReLU
  std::optional<QuantParams> x = {};  // if x are f32 images, which the kernel rounds to these codes
};

// Chooses between the dense algorithm of the layer's policy and block-sparse weights. Takes the
// implementation with the smaller estimate, unless the policy names an algorithm. `sparse` may be
// null.
Conv2dForm choose_form(Conv2dChoices& layer_choices, const SparseWeights* sparse,
                       const Conv2dProblem& problem, Direction direction, Device device,
                       WeightUse use);

// The inputs are x, w, b if the layer has a bias, and the residual if one has been absorbed. In a
// graph, w and b may be the results of masks and quantisers.
class CONVSCOPE_API Conv2dOp final : public Operation {
 public:
  static constexpr std::string_view kKind = "conv2d";
  // Creates the operation. `choices` are those of the layer.
  Conv2dOp(const Conv2dParams& params, bool has_bias, Ref<Conv2dChoices> choices)
      : Operation("conv2d"),
        params_(params),
        has_bias_(has_bias),
        layer_choices_(std::move(choices)) {}

  std::string text() const override;
  TensorDesc bind(Graph& graph) override;
  void forward(Emitter& emitter) override;
  void backward(Emitter& emitter) override;
  std::vector<RanKernel> kernels(const Graph& graph) const override;
  std::optional<Format> format(const Graph& graph, ActivationLayout layout) const override;
  void set_layouts(const Graph& graph) override;
  // Takes over the work of `next` and returns true, if its kernels can do that.
  bool absorb(const Graph& graph, const Operation& next);
  // Makes the operation compute on codes. The inputs become x (codes, or f32 if `codes.x` is set),
  // the codes of w, the bias f64 [K] and the residual (codes or f32); the last two may be kNoValue.
  void compute_on(Conv2dOnCodes codes, ValueId x, ValueId w, ValueId bias, ValueId residual);
  const std::optional<Conv2dOnCodes>& on_codes() const { return codes_; }
  // Names the scales of the codes for the next call. They are not read before the call runs.
  OperandViews views(Emitter& emitter) const;

  // Returns the problem. In a graph, a layer in half precision has a problem in fp16/bf16 and NHWC.
  // A chain may still replace the operation until the layouts are chosen.
  const Conv2dProblem& problem() const { return problem_; }
  ValueId x() const { return inputs[0]; }
  ValueId weight() const { return inputs[1]; }
  ValueId bias() const { return has_bias_ ? inputs[2] : kNoValue; }
  // Returns the layer's policy for a direction, such as "auto" or "int8_gemm,auto".
  const std::string& policy(Direction direction) const {
    return layer_choices_->policy().of(direction);
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
  bool prefers_nchw16c() const { return layer_choices_->policy().layout == "nchw16c"; }
  // Returns true when the operation computes on real numbers and no batch norm, residual or ReLU
  // with an upper bound has been absorbed.
  bool is_plain() const { return !codes_ && !norm_ && residual_at_ == 0 && std::isinf(most_); }

 private:
  const Conv2dForm& form(Direction direction) const {
    return forms_[static_cast<std::size_t>(direction)];
  }
  // Returns the work of the chosen algorithm, with dense weights or with blocks.
  Conv2dWork work(Direction direction) const {
    Conv2dWork out{choice(direction), problem_, direction};
    if (!form(direction).in_blocks) return out;
    out.problem.weight_format = sparse_->format();
    out.blocks = sparse_;
    out.w_is_stored = codes_.has_value();
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
    return problem_.math == MathMode::tf32 && problem_.dtype == DType::f32 && !sparse_;
  }
  void check_operands(const Graph& graph) const;
  // Returns whether a gradient is computed in this direction, or forward runs.
  bool runs(const Graph& graph, Direction direction) const;
  bool finds_algorithms(const Graph& graph) const;
  bool takes_only_nhwc(Direction direction, Device device) const;
  void backward_weight(Emitter& emitter, Slot& dy_rounded);
  void backward_data(Emitter& emitter, Slot& dy_rounded);
  void emit_bias_gradient(Emitter& emitter) const;
  // Returns the time of all directions on images in `layout`; nothing: it is not supported.
  std::optional<double> layout_ms(const Graph& graph, const ImageLayouts& layout) const;
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
  Weights weights(Emitter& emitter, OperandViews& views);
  Tensor residual_value(Emitter& emitter) const;
  void emit_fold(Emitter& emitter, Slot w, Slot b) const;
  // Operands of the next call. In half precision eager calls round x, w, b and dy, and save the
  // rounded x and w.
  Operand image(Emitter& emitter);
  Tensor rounded(Emitter& emitter, ValueId value, Slot& slot) const;
  Tensor gradient(Emitter& emitter, Slot& slot) const;

  Conv2dParams params_;
  bool has_bias_;
  Ref<Conv2dChoices> layer_choices_;
  Ref<SparseWeights> sparse_;  // of a masked weight; may be null
  Conv2dProblem problem_;
  Conv2dForms forms_;
  Slot x_rounded_ = kNoSlot, w_rounded_ = kNoSlot;
  WeightUse use_ = WeightUse::once;
  bool wants_both_ = false;
  bool feeds_norm_ = false;            // in training: only a batch norm reads y
  std::optional<BatchNormFold> norm_;  // inference only
  std::size_t residual_at_ = 0;        // inputs[residual_at_] is added; 0: none
  bool relu_ = false;
  float most_ = std::numeric_limits<float>::infinity();  // upper bound of the ReLU
  std::optional<Conv2dOnCodes> codes_;                   // inference only
};

}  // namespace convscope
