// SPDX-License-Identifier: Apache-2.0
// residual.cpp: a block that adds its input to the result of its body.
#include "layers/residual.h"

#include "framework/graph/graph.h"
#include "framework/ops/elementwise.h"
#include "layers/activation.h"
#include "layers/batch_norm2d/batch_norm2d.h"
#include "layers/conv2d/conv2d.h"

namespace convscope {
namespace {

// Checks that both operands of the sum have one shape, because shapes are not broadcast. forward()
// and output_shape() use this check.
void check_sum_shapes(const Shape& y, const Shape& beside) {
  CONVSCOPE_CHECK(
      y == beside, "residual",
      "expected a body that gives the shape of the shortcut because both are added, got ", y,
      " and ", beside);
}

}  // namespace

Residual::Residual(const std::vector<std::pair<std::string, std::shared_ptr<Module>>>& body,
                   std::shared_ptr<Sequential> shortcut, End end)
    : body_(std::make_shared<Sequential>()), shortcut_(std::move(shortcut)), end_(end) {
  CONVSCOPE_CHECK(!body.empty(), "residual", "expected at least one layer in the body, got none");
  for (const auto& [name, layer] : body) body_->add(name, add_child(name, layer));
  if (shortcut_) add_child("downsample", shortcut_);
}

void Residual::add_shortcut_transform(const std::string& name, std::shared_ptr<Module> transform) {
  CONVSCOPE_CHECK(shortcut_ != nullptr, "residual", "expected a shortcut of layers because '", name,
                  "' follows them, got x itself");
  shortcut_transforms_.push_back(add_child(name, std::move(transform)));
}

Variable Residual::forward(const Variable& input) {
  const Variable x = transformed_input(input);
  const Variable y = (*body_)(x);
  Variable beside = x;
  if (shortcut_) {
    const Graph::Scope scope(x.graph(), "downsample");
    beside = (*shortcut_)(x);
  }
  beside = passed(beside, shortcut_transforms_, x.graph());
  check_sum_shapes(y.shape(), beside.shape());
  const Variable sum = add(y, beside);
  return end_ == End::relu ? relu(sum) : sum;
}

Shape Residual::output_shape(const Shape& input) const {
  const Shape y = body_->output_shape(input);
  const Shape beside = shortcut_ ? shortcut_->output_shape(input) : input;
  check_sum_shapes(y, beside);
  return y;
}

void Residual::walk(const Shapes& inputs, const WalkVisitor& visit) {
  body_->walk(inputs, visit);
  if (shortcut_) shortcut_->walk(inputs, visit);
}

std::shared_ptr<Module> plain_conv(const PlainConv& sizes, const std::string& path,
                                   LayerContext& context) {
  const std::int64_t pad = sizes.kernel / 2;
  return std::make_shared<Conv2d>(
      Conv2dOptions{.in_channels = sizes.in_channels,
                    .out_channels = sizes.out_channels,
                    .kernel_h = sizes.kernel,
                    .kernel_w = sizes.kernel,
                    .params = {.stride_h = sizes.stride,
                               .stride_w = sizes.stride,
                               .padding = {pad, pad, pad, pad},
                               .groups = sizes.groups},
                    .bias = false,
                    .init = "kaiming_normal",
                    .policy = context.conv_policy ? context.conv_policy(path) : Conv2dPolicy{},
                    .name = path},
      context);
}

std::shared_ptr<Residual> basic_block_of(std::shared_ptr<Module> first,
                                         std::shared_ptr<Module> second,
                                         const std::function<std::shared_ptr<Module>()>& norm,
                                         std::shared_ptr<Sequential> shortcut) {
  return std::make_shared<Residual>(
      std::vector<std::pair<std::string, std::shared_ptr<Module>>>{
          {"conv1", std::move(first)},
          {"bn1", norm()},
          {"relu1", std::make_shared<Activation>("relu")},
          {"conv2", std::move(second)},
          {"bn2", norm()}},
      std::move(shortcut));
}

std::shared_ptr<Residual> basic_block(std::int64_t in_channels, std::int64_t out_channels,
                                      std::int64_t stride, const std::string& path,
                                      LayerContext& context) {
  const auto norm = [&] {
    return std::make_shared<BatchNorm2d>(out_channels, BatchNormOptions{}, context);
  };
  const auto first =
      plain_conv({.in_channels = in_channels, .out_channels = out_channels, .stride = stride},
                 path + ".conv1", context);
  const auto second = plain_conv({.in_channels = out_channels, .out_channels = out_channels},
                                 path + ".conv2", context);
  std::shared_ptr<Sequential> shortcut;
  if (stride != 1 || in_channels != out_channels) {
    shortcut = std::make_shared<Sequential>();
    shortcut->add("0", plain_conv({.in_channels = in_channels,
                                   .out_channels = out_channels,
                                   .kernel = 1,
                                   .stride = stride},
                                  path + ".downsample.0", context));
    shortcut->add("1", norm());
  }
  return basic_block_of(first, second, norm, shortcut);
}

CONVSCOPE_REGISTER_LAYER(
    "residual", {.doc = "ResNet block: relu of the input plus two 3x3 convolutions with batch norm",
                 .fields = {{.name = "out_channels",
                             .type = OptionType::integer,
                             .doc = "number of kernels of both convolutions",
                             .required = true,
                             .min = 1,
                             .max = 1 << 20},
                            {.name = "stride",
                             .type = OptionType::integer,
                             .default_value = std::int64_t{1},
                             .doc = "stride of the block, in pixels",
                             .min = 1,
                             .max = 1 << 20}},
                 .build = [](const Options& options, const Shape& input,
                             LayerContext& context) -> std::shared_ptr<Module> {
                   CONVSCOPE_CHECK(input.rank() == 4, "residual", "expected x [N,C,H,W], got ",
                                   input);
                   return basic_block(input[1], options.integer("out_channels"),
                                      options.integer("stride"), context.layer_name, context);
                 }})

}  // namespace convscope
