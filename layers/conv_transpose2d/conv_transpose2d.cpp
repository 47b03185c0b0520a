// SPDX-License-Identifier: Apache-2.0
// conv_transpose2d.cpp: the transposed convolution, as an operation and as a layer.
#include "layers/conv_transpose2d/conv_transpose2d.h"

#include "framework/graph/rounded_operand.h"
#include "framework/ops/elementwise.h"
#include "framework/ops/reshape.h"
#include "layers/dispatch/operator_use.h"
#include "layers/init.h"
#include "layers/plan/emit_call.h"

namespace convscope {
namespace {

constexpr const char* kOperation = "conv_transpose2d";

// Inputs: x, w.
class ConvTranspose2dOp final : public Operation {
 public:
  ConvTranspose2dOp(const ConvTranspose2dParams& params, Ref<ConvTranspose2dChoices> choices)
      : Operation(kOperation), params_(params), choices_(std::move(choices)) {}

  std::string text() const override {
    return cat(kOperation, " ", chosen(Direction::forward).algorithm->name,
               is_half(problem_.dtype) ? cat("; operands in ", name_of(problem_.dtype)) : "");
  }

  TensorDesc bind(Graph& graph) override {
    const TensorDesc &x = graph.desc(inputs[0]), &w = graph.desc(inputs[1]);
    CONVSCOPE_CHECK(x.dtype == w.dtype && (x.dtype == DType::f32 || x.dtype == DType::f64),
                    kOperation, "expected x and w of type f32 or both f64, got ", x.str(), " and ",
                    w.str());
    problem_ = conv_transpose2d_problem(x.shape, w.shape, params_, x.dtype);
    const auto checks = [&](Direction direction) {
      return is_check(choices_->policy().of(direction));
    };
    if (!graph.is_eager()) {
      if (problem_.is_empty()) graph.refuse("its batch has no samples");
      // Checks read tensors: eagerly.
      if (std::ranges::any_of(kDirections, checks)) throw SymbolicValue();
    }
    const WeightUse use = graph.is_eager() || graph.training() ? WeightUse::once : WeightUse::often;
    for (const Direction direction : kDirections) {
      if (!runs(graph, direction)) continue;
      chosen_[static_cast<std::size_t>(direction)] =
          choices_->get(problem_, direction, graph.device(), use);
    }
    return {problem_.y_shape(), x.dtype};
  }

  void forward(Emitter& emitter) override {
    rounded_[0] = rounded_[1] = kNoSlot;  // a compiled step emits twice
    Slot prepared = kNoSlot;
    if (!emitter.is_eager() && !emitter.graph().training()) {
      // Once after each change of the weights.
      emitter.prologue([&] { prepared = prepare_weights(emitter); });
    }
    const Tensor kept = prepared == kNoSlot ? Tensor() : emitter.use(prepared);
    Operands operands;
    operands.in = {x(emitter), kept.defined() ? Tensor() : w(emitter)};
    emit_in_type(emitter, problem_.dtype, {emitter.value(output())}, [&](const Emitter::Target& y) {
      operands.out[0] = y.tensor;
      emit(emitter, Direction::forward, operands, kept);
    });
  }

  void backward(Emitter& emitter) override {
    Slot rounded = kNoSlot;
    const auto dy = [&] {
      return rounded_operand(emitter, emitter.gradient(output()), problem_.dtype, rounded);
    };
    if (emitter.graph().wants_gradient(inputs[1])) {
      emit_in_type(
          emitter, problem_.dtype, emitter.gradient_target(inputs[1]),
          [&](const Emitter::Target& dw) {
            emit(emitter, Direction::backward_weight,
                 {.in = {x(emitter), dy()}, .out = {dw.tensor}, .accumulate = dw.accumulate});
          });
    }
    if (!emitter.graph().wants_gradient(inputs[0])) return;
    emitter.assign_gradient(inputs[0], [&](const Tensor& to) {
      emit_in_type(emitter, problem_.dtype, {to}, [&](const Emitter::Target& dx) {
        emit(emitter, Direction::backward_data, {.in = {dy(), w(emitter)}, .out = {dx.tensor}});
      });
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
  // In half precision, the backward pass reads the rounded copies of x and w.
  Operand x(Emitter& emitter) {
    if (!is_half(problem_.dtype)) return operand_of(emitter, inputs[0]);
    return rounded_operand(emitter, emitter.value(inputs[0]), problem_.dtype, rounded_[0]);
  }
  Tensor w(Emitter& emitter) {
    return rounded_operand(emitter, emitter.value(inputs[1]), problem_.dtype, rounded_[1]);
  }
  // Rounds w in half precision. Returns the weights that the algorithm prepares, if it does.
  Slot prepare_weights(Emitter& emitter) {
    const Tensor weights = w(emitter);
    const auto& algorithm = *chosen(Direction::forward).algorithm;
    if (algorithm.prepared_size(problem_, Direction::forward) == 0) return kNoSlot;
    return emit_preparation(emitter, algorithm, problem_, Direction::forward, weights);
  }
  const Choice<ConvTranspose2dProblem>& chosen(Direction direction) const {
    return chosen_[static_cast<std::size_t>(direction)];
  }
  void emit(Emitter& emitter, Direction direction, const Operands& operands,
            const Tensor& kept_weights = {}) const {
    emit_call(emitter, chosen(direction), problem_, direction, operands, kept_weights);
  }

  ConvTranspose2dParams params_;
  Ref<ConvTranspose2dChoices> choices_;  // of the layer
  ConvTranspose2dProblem problem_;
  Choice<ConvTranspose2dProblem> chosen_[3];  // by direction
  Slot rounded_[2] = {kNoSlot, kNoSlot};      // x and w in half precision
};

Variable with_bias(const Variable& y, const Variable& b) {
  if (!b.defined()) return y;
  // While a graph is recorded, the reshape must be one of its operations.
  Graph* const graph = y.graph();
  const Variable in_graph = graph != nullptr ? graph->variable(graph->value_of(b)) : b;
  return add(y, reshape(in_graph, {b.shape()[0], 1, 1}));
}

std::vector<OptionField> fields() {
  std::vector<OptionField> out = conv2d_fields();
  std::erase_if(out, [](const OptionField& field) { return field.name == "padding_mode"; });
  out.push_back({.name = "output_padding",
                 .type = OptionType::integers,
                 .default_value = std::vector<std::int64_t>{0},
                 .doc = "rows and columns to add at the bottom and right: one number or [height, "
                        "width], below the stride or the dilation",
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
  params.conv.precision = context.precision;
  return std::make_shared<ConvTranspose2d>(own, params, context);
}

}  // namespace

ConvTranspose2d::ConvTranspose2d(const Conv2dOptions& options, const ConvTranspose2dParams& params,
                                 LayerContext& context)
    : params_(params), choices_(make_ref<ConvTranspose2dChoices>(options.policy, options.name)) {
  const std::int64_t groups = params.conv.groups;
  CONVSCOPE_CHECK(options.in_channels % groups == 0 && options.out_channels % groups == 0,
                  kOperation,
                  "expected groups to divide both the input channels and the output channels, "
                  "got ",
                  groups, " groups, ", options.in_channels, " input channels and ",
                  options.out_channels, " output channels");
  for (const Direction direction : kDirections) {
    check_policy(kOperation, options.policy.of(direction), context.device,
                 Operator<ConvTranspose2dProblem>::algorithms(context.device.type).names());
  }
  const std::int64_t channels = options.out_channels / groups;
  const Shape shape{options.in_channels, channels, options.kernel_h, options.kernel_w};
  const std::int64_t fan_in = channels * options.kernel_h * options.kernel_w;
  weight_ = add_parameter("weight", initial_weight(options.init, shape, fan_in, context));
  if (!options.bias) return;
  bias_ =
      add_parameter("bias", initial_bias(options.init, {options.out_channels}, fan_in, context));
}

Variable ConvTranspose2d::forward(const Variable& x) {
  const Variable input = transformed_input(x), w = transformed_weight(weight_, x.graph());
  return with_bias(apply(std::make_unique<ConvTranspose2dOp>(params_, choices_), {input, w}),
                   bias_);
}

Shape ConvTranspose2d::output_shape(const Shape& input) const {
  return conv_transpose2d_problem(input, weight_.shape(), params_).y_shape();
}

std::unique_ptr<OperatorUse> ConvTranspose2d::operator_use(const Shape& input) const {
  return operator_use_of(conv_transpose2d_problem(input, weight_.shape(), params_),
                         choices_->policy(), choices_->layer());
}

ConvTranspose2dProblem conv_transpose2d_problem(const Shape& x, const Shape& w,
                                                const ConvTranspose2dParams& params, DType dtype) {
  const Conv2dParams& z = params.conv;
  CONVSCOPE_CHECK(x.rank() == 4 && w.rank() == 4 && x[1] == w[0], kOperation,
                  "expected x [N,C,H,W] and w [C,K/G,R,S], got x ", x, " and w ", w);
  const ConvTranspose2dProblem out(
      Conv2dProblem{.n = x[0],
                    .c = x[1],
                    .h = x[2],
                    .w = x[3],
                    .k = w[1] * z.groups,
                    .r = w[2],
                    .s = w[3],
                    .stride_h = z.stride_h,
                    .stride_w = z.stride_w,
                    .pad_top = z.padding.top,
                    .pad_bottom = z.padding.bottom,
                    .pad_left = z.padding.left,
                    .pad_right = z.padding.right,
                    .dilation_h = z.dilation_h,
                    .dilation_w = z.dilation_w,
                    .groups = z.groups,
                    .dtype = dtype == DType::f32 ? factor_type(z.precision) : dtype,
                    .math = math_mode(z.precision)},
      params.output_padding_h, params.output_padding_w);
  out.check();
  return out;
}

Variable conv_transpose2d(const Variable& x, const Variable& w, const Variable& b,
                          const ConvTranspose2dParams& params, const Conv2dPolicy& policy) {
  return with_bias(
      apply(std::make_unique<ConvTranspose2dOp>(params, make_ref<ConvTranspose2dChoices>(policy)),
            {x, w}),
      b);
}

}  // namespace convscope

CONVSCOPE_REGISTER_LAYER("conv_transpose2d",
                         {.doc = "enlarges an image: each pixel adds a multiple of a small kernel",
                          .fields = convscope::fields(),
                          .build = convscope::build})
