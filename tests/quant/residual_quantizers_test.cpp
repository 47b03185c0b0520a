// SPDX-License-Identifier: Apache-2.0
// residual_quantizers_test.cpp: tests quantisers at the sums of residual blocks: their positions,
// whether they are signed, and their results, compiled and as a dynamic graph.
#include <gtest/gtest.h>

#include "framework/ops/elementwise.h"
#include "layers/activation.h"
#include "layers/losses/cross_entropy.h"
#include "layers/plan/step_plan.h"
#include "layers/residual.h"
#include "quant/quantize_network.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using namespace testing;

std::shared_ptr<Module> network(const std::string& name, const Options& given,
                                const QuantConfig& config, std::int64_t image = 8) {
  LayerContext context;
  context.seed = 3;
  context.conv_policy = [](const std::string&) {
    return Conv2dPolicy{"direct", "direct", "direct", "nchw"};
  };
  const ModelType& type = model_types().get(name);
  const auto out =
      type.build(complete_options(type.fields, given, name), {1, 3, image, image}, 10, context);
  apply_quantization(*out, config, Device{});
  return out;
}

std::shared_ptr<Module> resnet(const QuantConfig& config) {
  Options given;
  given.set("stem", std::string("cifar"));
  given.set("widths", std::vector<std::int64_t>{4, 6, 8, 8});
  return network("resnet18", given, config);
}

// Returns a text like " layer1.0.conv1:u4" for each quantised layer input, and like " layer1.0+:u8"
// for each quantised block sum.
std::string inputs_of(Module& model, const std::string& within) {
  std::string out;
  for (const QuantizedTensor& tensor : quantized_tensors(model)) {
    if (tensor.is_weight || !tensor.layer.starts_with(within)) continue;
    const QuantizerOptions& options = tensor.quantizer->options();
    out += cat(" ", tensor.layer.substr(within.size()), tensor.tensor == "shortcut" ? "|" : "", ":",
               options.is_signed ? "s" : "u", options.bits);
  }
  return out;
}

TEST(ResidualQuantizers, StandAtTheInputOfABlockAndBehindItsShortcut) {
  const auto model = resnet({.w_bits = 4, .a_bits = 4});
  // Values after a relu are unsigned (u). A shortcut ends with a batch norm, so its values are
  // signed (s).
  EXPECT_EQ(inputs_of(*model, "layer1.0"), " .conv1:u4 .conv2:u4 :u8");
  EXPECT_EQ(inputs_of(*model, "layer2.0"), " .conv1:u4 .conv2:u4 .downsample.0:u4 :u8 |:s8");
  EXPECT_EQ(inputs_of(*model, "layer4.1"), " .conv1:u4 .conv2:u4 :u8");
  EXPECT_EQ(inputs_of(*model, "conv1"), " :s8");
  EXPECT_EQ(inputs_of(*model, "fc"), " :u8");
}

TEST(ResidualQuantizers, RoundForTheLayersThatReadAsManyBits) {
  const auto all = resnet({.w_bits = 4, .a_bits = 4, .residual_bits = 4});
  EXPECT_EQ(inputs_of(*all, "layer2.0"), " .conv2:u4 :u4 |:s4");
  QuantConfig config{.w_bits = 4, .a_bits = 4};
  config.per_layer["layer2.0.conv1"] = {.w_bits = {}, .a_bits = 8};
  const auto one = resnet(config);
  EXPECT_EQ(inputs_of(*one, "layer2.0"), " .conv2:u4 .downsample.0:u4 :u8 |:s8");
}

TEST(ResidualQuantizers, ArePartOfNothingWhenTheSumsStayF32) {
  const auto model = resnet({.w_bits = 4, .a_bits = 4, .residual_bits = 0});
  EXPECT_EQ(inputs_of(*model, "layer2.0"), " .conv1:u4 .conv2:u4 .downsample.0:u4");
}

TEST(ResidualQuantizers, FollowTheSignsOfInvertedResiduals) {
  Options given;
  given.set("stem", std::string("cifar"));
  given.set("width_multiplier", 0.01);
  given.set("dropout", 0.0);
  const auto model = network("mobilenet_v2", given, {.w_bits = 4, .a_bits = 4}, 16);
  // Blocks are connected without an activation, so their inputs are signed. Inside a block relu6
  // leaves no negative numbers.
  EXPECT_EQ(inputs_of(*model, "features.1."), " conv.0.0:u4 conv.1:u4");
  EXPECT_EQ(inputs_of(*model, "features.3"), " .conv.0.0:s4 .conv.1.0:u4 .conv.2:u4 :s8");
  EXPECT_EQ(inputs_of(*model, "features.4."), " conv.0.0:s4 conv.1.0:u4 conv.2:u4");
  EXPECT_EQ(inputs_of(*model, "classifier"), " .1:u8");
}

std::shared_ptr<Residual> block_of(bool body_ends_in_relu, Residual::End end) {
  LayerContext context;
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> body{
      {"conv", plain_conv({.in_channels = 3, .out_channels = 3}, "conv", context)}};
  if (body_ends_in_relu) body.emplace_back("relu", std::make_shared<Activation>("relu"));
  return std::make_shared<Residual>(body, nullptr, end);
}

TEST(ResidualQuantizers, KnowWhenASumCannotBeNegative) {
  for (const bool relu_in_front : {false, true}) {
    for (const bool relu_in_body : {false, true}) {
      for (const auto end : {Residual::End::sum, Residual::End::relu}) {
        LayerContext context;
        Sequential model;
        if (relu_in_front) model.add("relu", std::make_shared<Activation>("relu"));
        model.add("block", block_of(relu_in_body, end));
        model.add("last", plain_conv({.in_channels = 3, .out_channels = 2}, "last", context));
        apply_quantization(model, {}, {});
        const bool negative = end == Residual::End::sum && !(relu_in_front && relu_in_body);
        EXPECT_EQ(inputs_of(model, "last"), negative ? " :s8" : " :u8");
        EXPECT_EQ(inputs_of(model, "block"), relu_in_front ? " :u8" : " :s8");
      }
    }
  }
}

// Compares with the definition in the header, computed by hand.
TEST(ResidualQuantizers, RoundTheAddendOnceAndTheShortcutToo) {
  LayerContext context;
  const auto block = basic_block(4, 6, 2, "block", context);
  Sequential model;
  model.add("block", block);
  apply_quantization(model, {.w_bits = 8, .a_bits = 8}, {});
  const Variable x(normal({2, 4, 9, 7}, DType::f32));
  model.forward(x);  // calibrates
  const NoGrad no_grad;
  model.eval();
  Module *input = nullptr, *shortcut = nullptr;
  for (const QuantizedTensor& tensor : quantized_tensors(model)) {
    if (tensor.layer != "block") continue;
    (tensor.tensor == "input" ? input : shortcut) = tensor.quantizer;
  }
  ASSERT_TRUE(input != nullptr && shortcut != nullptr);
  const Variable rounded = input->forward(x);
  const Variable beside = block->shortcut()->forward(rounded);
  const Variable sum = relu(add(block->body().forward(rounded), shortcut->forward(beside)));
  const Tensor got = model.forward(x).value();
  const Tensor unrounded = relu(add(block->body().forward(rounded), beside)).value();
  double largest = 0, moved = 0;
  for (std::int64_t i = 0; i < got.numel(); ++i) {
    largest = std::max(largest, std::fabs(got.at(i) - sum.value().at(i)));
    moved = std::max(moved, std::fabs(got.at(i) - unrounded.at(i)));
  }
  EXPECT_EQ(largest, 0);
  EXPECT_GT(moved, 0) << "the shortcut is rounded";
}

TEST(ResidualQuantizers, ComputeTheSameBitsPlannedAndDynamic) {
  for (const std::int64_t residual_bits : {4, 8}) {
    const QuantConfig config{.w_bits = 4, .a_bits = 4, .residual_bits = residual_bits};
    const auto planned = resnet(config), dynamic = resnet(config);
    const Shape input{4, 3, 8, 8};
    const Tensor labels = Tensor::zeros({4}, DType::i32);
    const auto step = [&](Module& model, const Tensor& x) {
      model.zero_grad();
      const Variable loss = softmax_cross_entropy(model.forward(Variable(x)), labels);
      loss.backward();
      return loss.value().item();
    };
    for (Module* model : {planned.get(), dynamic.get()}) {
      step(*model, normal(input, DType::f32, 1));  // calibrates
    }
    std::string why;
    const auto plan = StepPlan::make(*planned, input, PlanMode::training, &why);
    ASSERT_NE(plan, nullptr) << why;
    for (std::uint64_t seed = 2; seed < 4; ++seed) {
      planned->zero_grad();
      const Tensor x = normal(input, DType::f32, seed);
      const double expected = step(*dynamic, x);
      EXPECT_EQ(plan->forward(x, labels), expected);
      plan->backward();
      const auto a = planned->parameters(), b = dynamic->parameters();
      for (std::size_t i = 0; i < a.size(); ++i) {
        const Tensor &da = a[i].variable.grad(), &db = b[i].variable.grad();
        double difference = 0, largest = 0;
        for (std::int64_t j = 0; j < da.numel(); ++j) {
          difference = std::max(difference, std::fabs(da.at(j) - db.at(j)));
          largest = std::max(largest, std::fabs(db.at(j)));
        }
        EXPECT_EQ(difference, 0) << a[i].name;
        EXPECT_GT(largest, 0) << a[i].name;
      }
    }
  }
}

TEST(ResidualQuantizers, AreKnownByName) {
  const auto model = resnet({});
  std::string names;
  for (const NamedParameter& parameter : model->parameters()) {
    if (!parameter.name.starts_with("layer2.0.") || !belongs_to_quantizer(parameter.name)) continue;
    names += parameter.name.substr(9) + " ";
  }
  // All quantisers have 8 bits, so conv1 and the shortcut read the block's input with one common
  // rounding.
  EXPECT_EQ(names,
            "conv1.weight_quantizer.log_step conv2.input_quantizer.log_step "
            "conv2.weight_quantizer.log_step downsample.0.weight_quantizer.log_step "
            "input_quantizer.log_step shortcut_quantizer.log_step ");
}

TEST(ResidualQuantizers, NeedAShortcutOfLayersToStandBehind) {
  EXPECT_ERROR(ErrorKind::kInvalid,
               "[residual] expected a shortcut of layers because 'q' follows them, got x itself",
               block_of(false, Residual::End::sum)
                   ->add_shortcut_transform("q", std::make_shared<Quantizer>(QuantizerOptions{})));
}

}  // namespace
}  // namespace convscope
