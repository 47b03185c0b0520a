// SPDX-License-Identifier: Apache-2.0
// deform_conv2d_layer.cpp: the layer, and its keys in a config.
#include <array>

#include "framework/ops/elementwise.h"
#include "layers/deform_conv2d/channel_slice.h"
#include "layers/deform_conv2d/deform_conv2d.h"
#include "layers/dispatch/operator_use.h"
#include "layers/init.h"

namespace convscope {
namespace {

constexpr const char* kOperation = Operator<DeformConv2dProblem>::kOperation;
constexpr const char* kBranch = "branch";

// The branch draws no random numbers, so later layers draw the same numbers as after a plain
// convolution. The branch stays in f32, because it computes sampling places.
std::shared_ptr<Conv2d> zero_branch(const Conv2dOptions& options, const LayerContext& context) {
  LayerContext own = context;
  own.precision = ComputePrecision::f32;
  auto branch = std::make_shared<Conv2d>(options, own);
  for (const NamedParameter& parameter : branch->parameters()) parameter.variable.value().zero();
  return branch;
}

std::shared_ptr<Module> build(const Options& options, const Shape& input, LayerContext& context) {
  CONVSCOPE_CHECK(input.rank() == 4, kOperation, "expected x of rank 4 [N,C,H,W], got ", input);
  DeformConv2dOptions own{.conv = conv2d_options(options, input[1], kOperation),
                          .offset_groups = options.integer("offset_groups"),
                          .mask = options.flag("mask"),
                          .offset_lr_scale = options.number("offset_lr_scale"),
                          .branch_policy = {}};
  own.conv.name = context.layer_name;
  // The config block `conv` names algorithms of ordinary convolutions. So it selects the algorithm
  // of the branch, not that of the deformable convolution. Its layout applies to both convolutions.
  if (context.conv_policy) {
    own.branch_policy = context.conv_policy(cat(context.layer_name, ".", kBranch));
    own.conv.policy.layout = own.branch_policy.layout;
  }
  return std::make_shared<DeformConv2d>(own, context);
}

std::vector<OptionField> fields() {
  using enum OptionType;
  std::vector<OptionField> out = conv2d_fields();
  std::erase_if(out, [](const OptionField& field) { return field.name == "padding_mode"; });
  for (OptionField& field : out) {
    if (field.name != "algorithm") continue;
    field.default_value = std::string("auto");
    field.doc =
        "of the sampling: auto, measure, check:<a>,<b>, a name, or a list 'a,b,auto'; the offset "
        "branch follows the block 'conv'";
  }
  out.push_back({.name = "offset_groups",
                 .type = integer,
                 .default_value = std::int64_t{1},
                 .doc = "number of groups of input channels, each with separate offsets",
                 .min = 1,
                 .max = 1 << 20});
  out.push_back({.name = "mask",
                 .type = boolean,
                 .default_value = true,
                 .doc = "also learn a factor (mask) for each sample: version 2 of the paper"});
  out.push_back({.name = "offset_lr_scale",
                 .type = number,
                 .default_value = 0.1,
                 .doc = "factor on the learning rate of the branch that computes the offsets",
                 .min = 0});
  return out;
}

}  // namespace

DeformConv2d::DeformConv2d(const DeformConv2dOptions& options, LayerContext& context)
    : options_(options),
      choices_(make_ref<DeformConv2dChoices>(options.conv.policy, options.conv.name)) {
  const Conv2dOptions& conv = options_.conv;
  const std::int64_t groups = conv.params.groups;
  options_.conv.params.precision = context.precision;
  CONVSCOPE_CHECK(conv.in_channels >= 1 && conv.out_channels >= 1 && groups >= 1 &&
                      conv.in_channels % groups == 0 && conv.out_channels % groups == 0,
                  kOperation,
                  "expected groups to divide both the input channels and the output channels, got ",
                  groups, " groups, ", conv.in_channels, " input channels and ", conv.out_channels,
                  " output channels");
  CONVSCOPE_CHECK(options.offset_groups >= 1 && conv.in_channels % options.offset_groups == 0,
                  kOperation, "expected offset_groups to divide the input channels, got ",
                  options.offset_groups, " offset_groups and ", conv.in_channels,
                  " input channels");
  CONVSCOPE_CHECK(conv.padding_mode == PadMode::zeros, kOperation,
                  "expected padding_mode zeros because samples outside of the image are 0, got ",
                  name_of(conv.padding_mode));
  for (const Direction direction : kDirections) {
    check_policy(kOperation, conv.policy.of(direction), context.device,
                 deform_conv2d_algorithms(context.device.type).names());
  }
  const std::int64_t channels = conv.in_channels / groups;
  const std::int64_t fan_in = channels * taps();
  weight_ = add_parameter(
      "weight",
      initial_weight(conv.init, {conv.out_channels, channels, conv.kernel_h, conv.kernel_w}, fan_in,
                     context));
  if (conv.bias) {
    bias_ = add_parameter("bias", initial_bias(conv.init, {conv.out_channels}, fan_in, context));
  }
  Conv2dOptions branch_options = conv;
  branch_options.out_channels = offset_channels() + (options_.mask ? mask_channels() : 0);
  branch_options.params.groups = 1;
  branch_options.bias = true;
  branch_options.policy = options_.branch_policy;
  branch_options.name = cat(conv.name, ".", kBranch);
  branch_ = add_child(kBranch, zero_branch(branch_options, context));
  branch_->scale_learning_rate(options_.offset_lr_scale);
}

DeformConv2d::Places DeformConv2d::places_of(const Variable& input) const {
  const Variable given = [&] {
    const Graph::Scope scope(input.graph(), kBranch);
    return (*branch_)(input);
  }();
  if (!options_.mask) return {given, {}};
  return {channel_slice(given, 0, offset_channels()),
          sigmoid(channel_slice(given, offset_channels(), mask_channels()))};
}

Variable DeformConv2d::forward(const Variable& x) {
  CONVSCOPE_CHECK(x.rank() == 4, kOperation, "expected x of rank 4 [N,C,H,W], got ", x.shape());
  const Variable input = transformed_input(x);
  const Places at = places_of(input);
  return deform_conv2d(input, at.offset, at.mask, transformed_weight(weight_, x.graph()), bias_,
                       params(), choices_);
}

DeformConv2dProblem DeformConv2d::problem(const Shape& input, DType dtype) const {
  return deform_conv2d_problem(input, weight_.shape(), params(), options_.mask, dtype);
}

Shape DeformConv2d::output_shape(const Shape& input) const { return problem(input).y_shape(); }

void DeformConv2d::walk(const Shapes& inputs, const WalkVisitor& visit) {
  branch_->walk(inputs, visit);
  visit(*this, inputs);
}

std::unique_ptr<OperatorUse> DeformConv2d::operator_use(const Shape& input) const {
  return operator_use_of(problem(input), choices_->policy(), options_.conv.name);
}

}  // namespace convscope

CONVSCOPE_REGISTER_LAYER("deform_conv2d",
                         {.doc = "a convolution that learns its sampling offsets from the image",
                          .fields = convscope::fields(),
                          .build = convscope::build})
