// SPDX-License-Identifier: Apache-2.0
// conv2d.cpp: the convolution as a differentiable operation and as a layer, and the layer's keys in
// a config.
#include "layers/conv2d/conv2d.h"

#include "framework/graph/apply.h"
#include "layers/conv2d/conv2d_op.h"
#include "layers/dispatch/operator_use.h"
#include "layers/init.h"

namespace convscope {

Conv2dProblem conv2d_problem(const Shape& x, const Shape& w, const Conv2dParams& params,
                             DType dtype, const char* operation) {
  CONVSCOPE_CHECK(x.rank() == 4, operation, "expected x of rank 4 [N,C,H,W], got ", x);
  CONVSCOPE_CHECK(w.rank() == 4, operation, "expected w of rank 4 [K,C/G,R,S], got ", w);
  CONVSCOPE_CHECK(params.groups >= 1, operation, "expected groups of at least 1, got ",
                  params.groups);
  CONVSCOPE_CHECK(x[1] == w[1] * params.groups, operation, "expected x with ", w[1] * params.groups,
                  " channels because w is ", w, " with groups ", params.groups, ", got x ", x);
  const Conv2dProblem problem{.n = x[0],
                              .c = x[1],
                              .h = x[2],
                              .w = x[3],
                              .k = w[0],
                              .r = w[2],
                              .s = w[3],
                              .stride_h = params.stride_h,
                              .stride_w = params.stride_w,
                              .pad_top = params.padding.top,
                              .pad_bottom = params.padding.bottom,
                              .pad_left = params.padding.left,
                              .pad_right = params.padding.right,
                              .dilation_h = params.dilation_h,
                              .dilation_w = params.dilation_w,
                              .groups = params.groups,
                              .dtype = dtype == DType::f32 ? factor_type(params.precision) : dtype,
                              .math = math_mode(params.precision)};
  problem.check();
  return problem;
}

Variable conv2d(const Variable& x, const Variable& w, const Variable& b, const Conv2dParams& params,
                const Conv2dPolicy& policy) {
  return conv2d(x, w, b, params, make_ref<Conv2dChoices>(policy));
}

Variable conv2d(const Variable& x, const Variable& w, const Variable& b, const Conv2dParams& params,
                const Ref<Conv2dChoices>& choices) {
  return apply(std::make_unique<Conv2dOp>(params, b.defined(), choices), {x, w, b});
}

namespace {

constexpr const char* kOperation = "conv2d";

Conv2dParams without_padding(Conv2dParams params) {
  params.padding = {};
  return params;
}

// A config value that is one number, or a list [height, width].
struct Pair {
  std::int64_t h, w;
};
Pair pair_of(const Options& options, std::string_view name, const char* operation) {
  const std::vector<std::int64_t>& v = options.integers(name);
  CONVSCOPE_CHECK(v.size() == 1 || v.size() == 2, operation, "expected '", name,
                  "' to be one number or [height, width], got ", to_text(options.get(name)));
  return {v[0], v.back()};
}

Padding2d padding_of(const Options& options, const char* operation) {
  const std::vector<std::int64_t>& v = options.integers("padding");
  CONVSCOPE_CHECK(v.size() == 1 || v.size() == 2 || v.size() == 4, operation,
                  "expected 'padding' to be one number, [height, width] or [top, bottom, left, ",
                  "right], got ", to_text(options.get("padding")));
  if (v.size() == 4) return {v[0], v[1], v[2], v[3]};
  return {v[0], v[0], v.back(), v.back()};
}

std::shared_ptr<Module> build(const Options& options, const Shape& input, LayerContext& context) {
  CONVSCOPE_CHECK(input.rank() == 4, kOperation, "expected x of rank 4 [N,C,H,W], got ", input);
  Conv2dOptions own = conv2d_options(options, input[1], kOperation);
  own.padding_mode = parse_pad_mode(options.text("padding_mode"));
  if (!options.has("algorithm") && context.conv_policy) {
    own.policy = context.conv_policy(context.layer_name);
  }
  own.name = context.layer_name;
  return std::make_shared<Conv2d>(own, context);
}

}  // namespace

Conv2dOptions conv2d_options(const Options& options, std::int64_t in_channels,
                             const char* operation) {
  const Pair kernel = pair_of(options, "kernel_size", operation);
  const Pair stride = pair_of(options, "stride", operation);
  const Pair dilation = pair_of(options, "dilation", operation);
  Conv2dOptions out{.in_channels = in_channels,
                    .out_channels = options.integer("out_channels"),
                    .kernel_h = kernel.h,
                    .kernel_w = kernel.w,
                    .params = {.stride_h = stride.h,
                               .stride_w = stride.w,
                               .padding = padding_of(options, operation),
                               .dilation_h = dilation.h,
                               .dilation_w = dilation.w,
                               .groups = options.integer("groups")},
                    .bias = options.flag("bias"),
                    .init = options.text("init")};
  if (options.has("algorithm")) {
    const std::string& word = options.text("algorithm");
    out.policy = {word, word, word};
  }
  return out;
}

std::vector<OptionField> conv2d_fields() {
  using enum OptionType;
  using Integers = std::vector<std::int64_t>;
  constexpr double kMax = 1 << 20;
  std::vector<std::string> modes;
  for (int i = 0; i < kPadModeCount; ++i) modes.emplace_back(name_of(static_cast<PadMode>(i)));
  return {
      {.name = "out_channels",
       .type = integer,
       .doc = "number of kernels, K",
       .required = true,
       .min = 1,
       .max = kMax},
      {.name = "kernel_size",
       .type = integers,
       .doc = "kernel size in pixels: one number or [height, width]",
       .required = true,
       .min = 1,
       .max = kMax},
      {.name = "stride",
       .type = integers,
       .default_value = Integers{1},
       .doc = "stride in pixels: one number or [height, width]",
       .min = 1,
       .max = kMax},
      {.name = "padding",
       .type = integers,
       .default_value = Integers{0},
       .doc = "padding in pixels: one number, [height, width] or [top, bottom, left, right]",
       .min = 0,
       .max = kMax},
      {.name = "dilation",
       .type = integers,
       .default_value = Integers{1},
       .doc = "dilation in pixels: one number or [height, width]",
       .min = 1,
       .max = kMax},
      {.name = "groups",
       .type = integer,
       .default_value = std::int64_t{1},
       .doc = "number of independent groups of channels",
       .min = 1,
       .max = kMax},
      {.name = "bias", .type = boolean, .default_value = true, .doc = "add a bias"},
      {.name = "padding_mode",
       .type = text,
       .default_value = std::string("zeros"),
       .doc = "values in the padding",
       .choices = modes},
      {.name = "algorithm",
       .type = text,
       .doc = "auto, measure, check:<a>,<b>, a name, or a list 'a,b,auto'; default: that of the "
              "block 'conv'"},
      init_field(),
  };
}

Conv2d::Conv2d(const Conv2dOptions& options, LayerContext& context)
    : options_(options),
      params_(options.params),
      choices_(make_ref<Conv2dChoices>(options.policy, options.name)) {
  params_.precision = context.precision;
  if (pads_itself()) params_ = without_padding(params_);
  const std::int64_t groups = options.params.groups;
  CONVSCOPE_CHECK(options.in_channels >= 1 && options.out_channels >= 1 && groups >= 1 &&
                      options.in_channels % groups == 0 && options.out_channels % groups == 0,
                  kOperation,
                  "expected groups to divide both the input channels and the output channels, got ",
                  groups, " groups, ", options.in_channels, " input channels and ",
                  options.out_channels, " output channels");
  CONVSCOPE_CHECK(options.kernel_h >= 1 && options.kernel_w >= 1, kOperation,
                  "expected a kernel of at least 1x1, got ", options.kernel_h, "x",
                  options.kernel_w);
  for (const Direction direction : kDirections) {
    check_conv2d_policy(options.policy.of(direction), context.device);
  }
  const std::int64_t channels = options.in_channels / groups;
  const std::int64_t fan_in = channels * options.kernel_h * options.kernel_w;
  weight_ = add_parameter(
      "weight", initial_weight(options.init,
                               {options.out_channels, channels, options.kernel_h, options.kernel_w},
                               fan_in, context));
  if (!options.bias) return;
  bias_ =
      add_parameter("bias", initial_bias(options.init, {options.out_channels}, fan_in, context));
}

Variable Conv2d::forward(const Variable& x) {
  const Variable input = transformed_input(x);
  const Variable w = transformed_weight(weight_, x.graph());
  if (!pads_itself()) return conv2d(input, w, bias_, params_, choices_);
  CONVSCOPE_CHECK(x.rank() == 4, kOperation, "expected x of rank 4 [N,C,H,W], got ", x.shape());
  return conv2d(pad2d(input, options_.params.padding, options_.padding_mode), w, bias_, params_,
                choices_);
}

Conv2dProblem Conv2d::problem(const Shape& input, DType dtype) const {
  Shape framed = input;
  if (pads_itself() && input.rank() == 4) {
    const Padding2d& padding = options_.params.padding;
    framed = {input[0], input[1], input[2] + padding.top + padding.bottom,
              input[3] + padding.left + padding.right};
  }
  return conv2d_problem(framed, weight_.shape(), params_, dtype);
}

namespace {

// Adds the verdict on block_sparse to the verdicts on dense algorithms. Used for layers whose
// compiled step may compute with the kept blocks only.
class SparseUse final : public OperatorUse {
 public:
  SparseUse(std::unique_ptr<OperatorUse> dense, const Conv2dProblem& blocks)
      : dense_(std::move(dense)), blocks_(blocks) {}
  const char* operation() const override { return dense_->operation(); }
  std::string problem() const override { return dense_->problem(); }
  std::string kernel() const override { return dense_->kernel(); }
  double nominal_flops() const override { return dense_->nominal_flops(); }
  const AlgorithmPolicy& policy() const override { return dense_->policy(); }
  ChosenNames choose(Direction direction, Device device, WeightUse use) const override {
    return dense_->choose(direction, device, use);
  }
  Decision decision(Direction direction, Device device, ImageLayouts layout) const override {
    return dense_->decision(direction, device, layout);
  }
  std::vector<Verdict> explain(Direction direction, Device device,
                               ImageLayouts layout) const override {
    std::vector<Verdict> out = dense_->explain(direction, device, layout);
    Conv2dProblem blocks = blocks_;
    blocks.layout = layout;
    for (const Verdict& block_verdict : explain_conv2d("auto", blocks, direction, device)) {
      if (block_verdict.algorithm != "block_sparse" || !block_verdict.accepts) continue;
      for (Verdict& one : out) {
        if (one.algorithm != block_verdict.algorithm) continue;
        const bool refused = one.refused;
        one = block_verdict;
        one.chosen = false;  // the compiled step decides what is chosen
        one.refused = refused;
      }
    }
    return out;
  }

 private:
  std::unique_ptr<OperatorUse> dense_;
  Conv2dProblem blocks_;
};

}  // namespace

std::unique_ptr<OperatorUse> Conv2d::operator_use(const Shape& input) const {
  Conv2dProblem blocks = problem(input);
  auto dense = operator_use_of(blocks, policy(), options_.name);
  Graph graph(input, PlanMode::inference, weight_.device());
  const ValueId w = graph.value_of(transformed_weight(weight_, &graph));
  const Ref<SparseWeights> kept = graph.desc(w).kept;
  if (!kept || !kept->obstacle().empty() || blocks.dtype != DType::f32) return dense;
  kept->refresh();
  blocks.weight_format = kept->format();
  return std::make_unique<SparseUse>(std::move(dense), blocks);
}

Shape Conv2d::output_shape(const Shape& input) const {
  if (pads_itself() && input.rank() == 4) {  // checked here because the border is filled from the
                                             // image itself
    const Padding2d& p = options_.params.padding;
    const std::int64_t slack = options_.padding_mode == PadMode::reflect ? 1 : 0;
    CONVSCOPE_CHECK(options_.padding_mode == PadMode::replicate ||
                        (p.top + slack <= input[2] && p.bottom + slack <= input[2] &&
                         p.left + slack <= input[3] && p.right + slack <= input[3]),
                    kOperation, "expected padding ", slack == 1 ? "smaller than" : "of at most",
                    " the image because padding_mode is ", name_of(options_.padding_mode),
                    ", got padding ", p.top, ",", p.bottom, ",", p.left, ",", p.right, " on x ",
                    input);
  }
  return problem(input).y_shape();
}

}  // namespace convscope

CONVSCOPE_REGISTER_LAYER("conv2d", {.doc = "slides K small kernels over the image",
                                    .fields = convscope::conv2d_fields(),
                                    .build = convscope::build})
