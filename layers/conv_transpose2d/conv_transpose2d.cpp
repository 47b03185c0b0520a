// SPDX-License-Identifier: Apache-2.0
// conv_transpose2d.cpp: the transposed convolution, as an operation and as a layer.
#include "layers/conv_transpose2d/conv_transpose2d.h"

#include "framework/ops/elementwise.h"
#include "framework/ops/reshape.h"
#include "layers/init.h"
#include "layers/plan/emit_call.h"

namespace convscope {
namespace {

constexpr const char* kOperation = "conv_transpose2d";

// Returns the policy for the directions of the convolution: its backward_data is this forward.
Conv2dPolicy exchanged(Conv2dPolicy policy) {
  std::swap(policy.forward, policy.backward_data);
  return policy;
}

// Returns the direction of the convolution that computes `direction` of this operation.
Direction exchanged(Direction direction) {
  return direction == Direction::forward         ? Direction::backward_data
         : direction == Direction::backward_data ? Direction::forward
                                                 : direction;
}

// Inputs: x, w.
class ConvTranspose2dOp final : public Operation {
 public:
  ConvTranspose2dOp(const ConvTranspose2dParams& params, Ref<Conv2dChoices> choices)
      : Operation(kOperation), params_(params), choices_(std::move(choices)) {}

  std::string text() const override {
    return cat(kOperation, " ", chosen(Direction::forward).algorithm->name);
  }

  TensorDesc bind(Graph& graph) override {
    const TensorDesc &x = graph.desc(inputs[0]), &w = graph.desc(inputs[1]);
    CONVSCOPE_CHECK(x.dtype == w.dtype && (x.dtype == DType::f32 || x.dtype == DType::f64),
                    kOperation, "expected x and w of type f32 or both f64, got ", x.str(), " and ",
                    w.str());
    problem_ = conv_transpose2d_problem(x.shape, w.shape, params_, x.dtype);
    const auto checks = [&](Direction direction) {
      return is_check(choices_->policy().of(exchanged(direction)));
    };
    if (!graph.is_eager()) {
      if (problem_.is_empty()) graph.refuse("its batch has no samples");
      if (std::ranges::any_of(kDirections, checks)) throw SymbolicValue();
    }
    for (const Direction direction : kDirections) {
      if (!runs(graph, direction)) continue;
      chosen_[static_cast<std::size_t>(direction)] =
          choices_->get(problem_, exchanged(direction), graph.device(), WeightUse::once);
    }
    return {problem_.x_shape(), x.dtype};
  }

  void forward(Emitter& emitter) override {
    emit(emitter, Direction::forward,
         {.in = {operand_of(emitter, inputs[0]), emitter.value(inputs[1])},
          .out = {emitter.value(output())}});
  }

  void backward(Emitter& emitter) override {
    const Tensor dy = emitter.gradient(output());
    if (emitter.graph().wants_gradient(inputs[1])) {
      const Emitter::Target dw = emitter.gradient_target(inputs[1]);
      emit(emitter, Direction::backward_weight,
           {.in = {dy, operand_of(emitter, inputs[0])},
            .out = {dw.tensor},
            .accumulate = dw.accumulate});
    }
    if (!emitter.graph().wants_gradient(inputs[0])) return;
    const Tensor w = emitter.value(inputs[1]);
    emitter.assign_gradient(inputs[0], [&](const Tensor& dx) {
      emit(emitter, Direction::backward_data, {.in = {dy, w}, .out = {dx}});
    });
  }

  std::vector<RanKernel> kernels(const Graph& graph) const override {
    std::vector<RanKernel> out;
    for (const Direction direction : kDirections) {
      if (!runs(graph, direction)) continue;
      out.push_back({.layer = layer,
                     .direction = direction,
                     .kernel = chosen(direction).algorithm->name,
                     .flops = problem_.nominal_flops()});
    }
    return out;
  }

 private:
  bool runs(const Graph& graph, Direction direction) const {
    return direction == Direction::forward         ? true
           : direction == Direction::backward_data ? graph.wants_gradient(inputs[0])
                                                   : graph.wants_gradient(inputs[1]);
  }
  const Conv2dChoice& chosen(Direction direction) const {
    return chosen_[static_cast<std::size_t>(direction)];
  }
  void emit(Emitter& emitter, Direction direction, const Operands& operands) const {
    emit_call(emitter, chosen(direction), problem_, exchanged(direction), operands);
  }

  ConvTranspose2dParams params_;
  Ref<Conv2dChoices> choices_;  // of the layer
  Conv2dProblem problem_;       // of the convolution from y to x
  Conv2dChoice chosen_[3];      // by direction of this operation
};

Variable with_bias(const Variable& y, const Variable& b) {
  if (!b.defined()) return y;
  // While a graph is recorded, the reshape must be one of its operations.
  Graph* const graph = y.graph();
  const Variable in_graph = graph != nullptr ? graph->variable(graph->value_of(b)) : b;
  return add(y, reshape(in_graph, {b.shape()[0], 1, 1}));
}

// Parameters: weight [C,K/G,R,S], bias [K].
class ConvTranspose2d final : public Module {
 public:
  ConvTranspose2d(const Conv2dOptions& options, const ConvTranspose2dParams& params,
                  LayerContext& context)
      : params_(params),
        choices_(make_ref<Conv2dChoices>(exchanged(options.policy), options.name)) {
    const std::int64_t groups = params.conv.groups;
    CONVSCOPE_CHECK(options.in_channels % groups == 0 && options.out_channels % groups == 0,
                    kOperation,
                    "expected groups to divide both the input channels and the output channels, "
                    "got ",
                    groups, " groups, ", options.in_channels, " input channels and ",
                    options.out_channels, " output channels");
    for (const Direction direction : kDirections) {
      check_conv2d_policy(options.policy.of(direction), context.device);
    }
    const std::int64_t channels = options.out_channels / groups;
    const Shape shape{options.in_channels, channels, options.kernel_h, options.kernel_w};
    const std::int64_t fan_in = channels * options.kernel_h * options.kernel_w;
    weight_ = add_parameter("weight", initial_weight(options.init, shape, fan_in, context));
    if (!options.bias) return;
    bias_ =
        add_parameter("bias", initial_bias(options.init, {options.out_channels}, fan_in, context));
  }
  std::string kind() const override { return kOperation; }
  Variable forward(const Variable& x) override {
    return with_bias(apply(std::make_unique<ConvTranspose2dOp>(params_, choices_), {x, weight_}),
                     bias_);
  }
  Shape output_shape(const Shape& input) const override {
    return conv_transpose2d_problem(input, weight_.shape(), params_).x_shape();
  }

 private:
  ConvTranspose2dParams params_;
  Variable weight_, bias_;
  Ref<Conv2dChoices> choices_;
};

std::vector<OptionField> fields() {
  std::vector<OptionField> out = conv2d_fields();
  std::erase_if(out, [](const OptionField& field) { return field.name == "padding_mode"; });
  out.push_back({.name = "output_padding",
                 .type = OptionType::integers,
                 .default_value = std::vector<std::int64_t>{0},
                 .doc = "rows and columns to add at the bottom and right: one number or [height, "
                        "width], below the stride",
                 .min = 0,
                 .max = 1 << 20});
  return out;
}

std::shared_ptr<Module> build(const Options& options, const Shape& input, LayerContext& context) {
  CONVSCOPE_CHECK(input.rank() == 4, kOperation, "expected x of rank 4 [N,C,H,W], got ", input);
  Conv2dOptions own = conv2d_options(options, input[1], kOperation);
  if (!options.has("algorithm") && context.conv_policy) {
    own.policy = context.conv_policy(context.layer_name);
  }
  own.name = context.layer_name;
  const std::vector<std::int64_t>& more = options.integers("output_padding");
  CONVSCOPE_CHECK(more.size() == 1 || more.size() == 2, kOperation,
                  "expected 'output_padding' to be one number or [height, width], got ",
                  to_text(options.get("output_padding")));
  ConvTranspose2dParams params{own.params, more.front(), more.back()};
  if (context.precision == ComputePrecision::tf32) params.conv.precision = context.precision;
  return std::make_shared<ConvTranspose2d>(own, params, context);
}

}  // namespace

Conv2dProblem conv_transpose2d_problem(const Shape& x, const Shape& w,
                                       const ConvTranspose2dParams& params, DType dtype) {
  const Conv2dParams& z = params.conv;
  CONVSCOPE_CHECK(x.rank() == 4 && w.rank() == 4 && x[1] == w[0], kOperation,
                  "expected x [N,C,H,W] and w [C,K/G,R,S], got x ", x, " and w ", w);
  CONVSCOPE_CHECK(params.output_padding_h >= 0 && params.output_padding_w >= 0 &&
                      params.output_padding_h < z.stride_h && params.output_padding_w < z.stride_w,
                  kOperation, "expected an output_padding below the stride, got ",
                  params.output_padding_h, "x", params.output_padding_w, " with stride ",
                  z.stride_h, "x", z.stride_w);
  const std::int64_t p = (x[2] - 1) * z.stride_h - z.padding.top - z.padding.bottom +
                         z.dilation_h * (w[2] - 1) + params.output_padding_h + 1;
  const std::int64_t q = (x[3] - 1) * z.stride_w - z.padding.left - z.padding.right +
                         z.dilation_w * (w[3] - 1) + params.output_padding_w + 1;
  CONVSCOPE_CHECK(p >= 1 && q >= 1, kOperation, "expected a result of at least one pixel, got ", p,
                  "x", q, " from x ", x, " and w ", w);
  return conv2d_problem({x[0], w[1] * z.groups, p, q}, w, z, dtype, kOperation);
}

Variable conv_transpose2d(const Variable& x, const Variable& w, const Variable& b,
                          const ConvTranspose2dParams& params, const Conv2dPolicy& policy) {
  return with_bias(
      apply(std::make_unique<ConvTranspose2dOp>(params, make_ref<Conv2dChoices>(exchanged(policy))),
            {x, w}),
      b);
}

}  // namespace convscope

CONVSCOPE_REGISTER_LAYER("conv_transpose2d",
                         {.doc = "enlarges an image: each pixel adds a multiple of a small kernel",
                          .fields = convscope::fields(),
                          .build = convscope::build})
