// SPDX-License-Identifier: Apache-2.0
// residual_networks_test.cpp: tests the residual block, ResNet-18 and MobileNet v1 (shapes, names,
// numbers of parameters, gradients), and the gradients of MobileNet v2. mobilenet_v2_test.cpp tests
// MobileNet v2 in other respects.
#include <gtest/gtest.h>

#include <map>

#include "framework/ops/elementwise.h"
#include "layers/losses/cross_entropy.h"
#include "layers/plan/step_plan.h"
#include "layers/residual.h"
#include "tests/layers/layer_cases.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using testing::build_layer;
using testing::error_of;
using testing::near;
using testing::normal;
using testing::on_every_machine;
using testing::options;

const std::vector<std::int64_t> kTiny{4, 6, 8, 8};

std::shared_ptr<Module> model(const std::string& name, const Options& given, const Shape& input,
                              int classes = 10) {
  LayerContext context;
  context.seed = 3;
  const ModelType& type = model_types().get(name);
  return type.build(complete_options(type.fields, given, name), input, classes, context);
}

std::shared_ptr<Module> tiny_resnet() {
  return model("resnet18", options({{"stem", std::string("cifar")}, {"widths", kTiny}}),
               {1, 3, 8, 8});
}

std::shared_ptr<Module> tiny_mobilenet() {
  return model("mobilenet_v1",
               options({{"stem", std::string("cifar")}, {"width_multiplier", 0.01}}),
               {1, 3, 16, 16});
}

std::shared_ptr<Module> tiny_mobilenet_v2() {
  return model(
      "mobilenet_v2",
      options({{"stem", std::string("cifar")}, {"width_multiplier", 0.01}, {"dropout", 0.0}}),
      {1, 3, 16, 16});
}

std::map<std::string, Shape> shapes_of(const Module& network) {
  std::map<std::string, Shape> out;
  for (const NamedParameter& p : network.parameters()) out[p.name] = p.variable.shape();
  for (const NamedTensor& b : network.buffers()) out[b.name] = b.tensor.shape();
  return out;
}

TEST(Residual, AddsItsInputToTheBodyBeforeTheLastActivation) {
  LayerContext context;
  const auto block = basic_block(3, 3, 1, "b", context);
  EXPECT_EQ(block->shortcut(), nullptr);
  const Variable x(normal({2, 3, 5, 4}, DType::f32));
  block->eval();
  const Tensor got = block->forward(x).value();
  const Tensor want = relu(add(block->body().forward(x), x)).value();
  EXPECT_TRUE(testing::same_bits(got, want));
}

TEST(Residual, ProjectsItsInputWhereTheShapeChanges) {
  LayerContext context;
  const auto block = basic_block(3, 5, 2, "b", context);
  ASSERT_NE(block->shortcut(), nullptr);
  const Variable x(normal({2, 3, 7, 6}, DType::f32));
  EXPECT_EQ(block->output_shape(x.shape()), (Shape{2, 5, 4, 3}));
  EXPECT_EQ(block->forward(x).shape(), (Shape{2, 5, 4, 3}));
  const auto shapes = shapes_of(*block);
  EXPECT_EQ(shapes.at("downsample.0.weight"), (Shape{5, 3, 1, 1}));
  EXPECT_EQ(shapes.at("conv2.weight"), (Shape{5, 5, 3, 3}));
  EXPECT_EQ(shapes.at("bn2.running_var"), (Shape{5}));
  EXPECT_FALSE(shapes.contains("conv1.bias"));
}

TEST(Residual, IsALayerOfAList) {
  const auto layer = build_layer(
      "residual", options({{"out_channels", std::int64_t{6}}, {"stride", std::int64_t{2}}}),
      {1, 4, 8, 8});
  EXPECT_EQ(layer->kind(), "residual");
  EXPECT_EQ(layer->output_shape({3, 4, 8, 8}), (Shape{3, 6, 4, 4}));
  EXPECT_NE(error_of([] {
              build_layer("residual", options({{"out_channels", std::int64_t{6}}}), {1, 4});
            }).find("expected x [N,C,H,W], got [1,4]"),
            std::string::npos);
}

TEST(Residual, RefusesABodyThatDoesNotFitTheShortcut) {
  LayerContext context;
  const auto conv = plain_conv({.in_channels = 3, .out_channels = 4}, "c", context);
  const Residual block({{"c", conv}}, nullptr);
  EXPECT_NE(error_of([&] {
              (void)block.output_shape({1, 3, 5, 5});
            }).find("got [1,4,5,5] and [1,3,5,5]"),
            std::string::npos);
}

// Adding tensors would broadcast a shortcut of one channel. A residual block must refuse such a
// shortcut.
TEST(Residual, AddsNoShapesThatWouldHaveToBeBroadcast) {
  LayerContext context;
  const auto conv = plain_conv({.in_channels = 1, .out_channels = 4}, "c", context);
  Residual block({{"c", conv}}, nullptr);
  const std::string expected = "got [2,4,5,5] and [2,1,5,5]";
  EXPECT_NE(error_of([&] {
              (void)block.forward(Variable(Tensor::zeros({2, 1, 5, 5})));
            }).find(expected),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              std::string why;
              (void)StepPlan::make(block, {2, 1, 5, 5}, PlanMode::training, &why);
            }).find(expected),
            std::string::npos);
}

TEST(Residual, TrainModeReachesTheBody) {
  LayerContext context;
  const auto block = basic_block(3, 3, 1, "b", context);
  block->eval();
  for (const NamedModule& part : block->modules()) EXPECT_FALSE(part.module->is_training());
}

// With all weights of the last batch norm 0, the block must return relu of its input.
TEST(Residual, WithoutItsBodyIsOnlyTheActivation) {
  LayerContext context;
  const auto block = basic_block(2, 2, 1, "b", context);
  for (const NamedParameter& p : block->parameters()) {
    if (p.name == "bn2.weight") p.variable.value().copy_from(Tensor::zeros({2}));
  }
  const Variable x = testing::leaf(normal({1, 2, 3, 3}, DType::f32));
  const Variable y = block->forward(x);
  EXPECT_TRUE(testing::same_bits(y.value(), relu(x).value()));
  y.backward(Tensor::full({1, 2, 3, 3}, 1.0));
  for (std::int64_t i = 0; i < 18; ++i) {
    EXPECT_EQ(x.grad().at(i), x.value().at(i) > 0 ? 1.0 : 0.0);
  }
}

TEST(Walk, VisitsEveryLayerWithTheShapeThatReachesIt) {
  const auto network = tiny_resnet();
  std::map<const Module*, std::string> names;
  for (const NamedModule& part : network->modules()) names.emplace(part.module, part.name);
  std::map<std::string, Shape> seen;
  network->walk({{2, 3, 8, 8}}, [&](Module& layer, const Shapes& inputs) {
    EXPECT_TRUE(seen.emplace(names.at(&layer), inputs[0]).second);
  });
  EXPECT_EQ(seen.at("conv1"), (Shape{2, 3, 8, 8}));
  EXPECT_EQ(seen.at("layer2.0.conv1"), (Shape{2, 4, 8, 8}));
  EXPECT_EQ(seen.at("layer2.0.downsample.0"), (Shape{2, 4, 8, 8}));
  EXPECT_EQ(seen.at("layer2.0.conv2"), (Shape{2, 6, 4, 4}));
  EXPECT_EQ(seen.at("fc"), (Shape{2, 8}));
}

TEST(ResNet18, HasTheNumbersOfTheTextbook) {
  const auto network = model("resnet18", {}, {1, 3, 224, 224}, 1000);
  EXPECT_EQ(network->parameter_count(), 11689512);  // torchvision.models.resnet18
  EXPECT_EQ(network->kind(), "resnet18");
  const auto shapes = shapes_of(*network);
  EXPECT_EQ(shapes.at("conv1.weight"), (Shape{64, 3, 7, 7}));
  EXPECT_EQ(shapes.at("layer4.0.downsample.0.weight"), (Shape{512, 256, 1, 1}));
  EXPECT_EQ(shapes.at("layer1.1.bn2.running_mean"), (Shape{64}));
  EXPECT_EQ(shapes.at("fc.weight"), (Shape{1000, 512}));
  EXPECT_EQ(shapes.size(), 62U + 40U);  // parameters, and two buffers of each of 20 batch norms
  EXPECT_EQ(network->output_shape({5, 3, 224, 224}), (Shape{5, 1000}));
}

TEST(MobileNetV1, HasTheNumbersOfThePaper) {
  const auto network = model("mobilenet_v1", {}, {1, 3, 224, 224}, 1000);
  EXPECT_EQ(network->parameter_count(), 4231976);  // 4.2 million in table 9
  const auto shapes = shapes_of(*network);
  EXPECT_EQ(shapes.at("block1.depthwise.weight"), (Shape{32, 1, 3, 3}));
  EXPECT_EQ(shapes.at("block13.pointwise.weight"), (Shape{1024, 1024, 1, 1}));
  EXPECT_EQ(network->output_shape({2, 3, 224, 224}), (Shape{2, 1000}));
  const auto half = model("mobilenet_v1", options({{"width_multiplier", 0.5}}), {1, 3, 64, 64});
  EXPECT_EQ(shapes_of(*half).at("block13.pointwise.weight"), (Shape{512, 512, 1, 1}));
}

TEST(ResidualNetworks, ForwardHasTheShapeThatWasSaid) {
  const Variable x(normal({2, 3, 40, 33}, DType::f32));
  const auto resnet = model("resnet18", options({{"widths", kTiny}}), {1, 3, 40, 33});
  EXPECT_EQ(resnet->forward(x).shape(), resnet->output_shape(x.shape()));
  const auto mobilenet =
      model("mobilenet_v1", options({{"width_multiplier", 0.1}}), {1, 3, 40, 33}, 7);
  EXPECT_EQ(mobilenet->forward(x).shape(), (Shape{2, 7}));
}

// Compares the slope of the loss along the gradient of each parameter with a central difference, in
// double. The two points are so near (the loss changes by 2e-6) that an activation rarely switches
// between them. Rounding (1e-15) divided by that change stays below 1e-8. A bias that a later batch
// norm removes has slope 0, and only rounding errors as its gradient.
void expect_slopes(Module& network, const Shape& images) {
  for (const NamedParameter& p : network.parameters()) {
    p.variable.state()->value = p.variable.value().to(DType::f64);
    // If all biases were 0, a batch norm after an activation would cancel the scale of an earlier
    // batch norm, and the slope of the loss along this scale would be 0.
    if (p.name.ends_with("bias")) {
      p.variable.value().copy_from(testing::uniform(p.variable.shape(), 0.1f, 0.5f));
    }
  }
  const Variable x(normal(images));
  const Tensor labels = Tensor::zeros({images[0]}, DType::i32);
  for (int i = 0; i < images[0]; ++i) labels.data<std::int32_t>()[i] = i % 10;
  const auto loss = [&] { return softmax_cross_entropy(network.forward(x), labels); };
  loss().backward();
  int undone = 0, tried = 0;
  for (const NamedParameter& p : network.parameters()) {
    const Tensor gradient = p.variable.grad();
    const Tensor value = p.variable.value();
    double square = 0;
    for (std::int64_t i = 0; i < gradient.numel(); ++i) square += gradient.at(i) * gradient.at(i);
    ASSERT_GT(square, 0) << p.name;
    ++tried;
    if (square < 1e-18 && p.name.ends_with("bias")) {
      ++undone;
      continue;
    }
    const Tensor before = value.clone();
    const auto moved = [&](double step) {
      for (std::int64_t i = 0; i < value.numel(); ++i) {
        value.data<double>()[i] = before.at(i) + step * gradient.at(i);
      }
      const NoGrad no_grad;
      return loss().value().item();
    };
    const double step = 1e-6 / square;
    const double slope = (moved(step) - moved(-step)) / (2 * step);
    value.copy_from(before);
    EXPECT_NEAR(slope / square, 1, 1e-3) << p.name;
  }
  EXPECT_LT(10 * undone, 2 * tried);
}

TEST(ResNet18, GradientsOfTheWholeNetworkMatchDifferences) {
  expect_slopes(*tiny_resnet(), {3, 3, 8, 8});
}

TEST(MobileNetV1, GradientsOfTheWholeNetworkMatchDifferences) {
  expect_slopes(*tiny_mobilenet(), {3, 3, 16, 16});
}

TEST(MobileNetV2, GradientsOfTheWholeNetworkMatchDifferences) {
  expect_slopes(*tiny_mobilenet_v2(), {3, 3, 8, 8});
}

Tensor all_gradients(Module& network, const Tensor& x, const Tensor& labels) {
  network.zero_grad();
  softmax_cross_entropy(network.forward(Variable(x)), labels).backward();
  Tensor all = Tensor::empty({network.parameter_count()});
  std::int64_t at = 0;
  for (const NamedParameter& p : network.parameters()) {
    const Tensor gradient = p.variable.grad();
    all.slice_rows(at, gradient.numel()).copy_from(gradient.reshape({gradient.numel()}));
    at += gradient.numel();
  }
  return all;
}

TEST(ResidualNetworks, OneAndTwoThreadsGiveTheSameBitsOfEveryGradient) {
  const Tensor x = normal({4, 3, 16, 16}, DType::f32);
  const Tensor labels = Tensor::zeros({4}, DType::i32);
  for (const auto& network : {tiny_resnet(), tiny_mobilenet(), tiny_mobilenet_v2()}) {
    on_every_machine([&] { return all_gradients(*network, x, labels); }, [](const Tensor&) {});
  }
}

TEST(ResidualNetworks, ConvolutionsAreAskedForByTheirWholeNames) {
  std::vector<std::string> asked;
  LayerContext context;
  context.conv_policy = [&](const std::string& name) {
    asked.push_back(name);
    return Conv2dPolicy{};
  };
  const ModelType& type = model_types().get("resnet18");
  (void)type.build(complete_options(type.fields, options({{"widths", kTiny}}), "resnet18"),
                   {1, 3, 32, 32}, 10, context);
  EXPECT_EQ(asked.size(), 20U);
  EXPECT_EQ(asked.front(), "conv1");
  EXPECT_EQ(std::count(asked.begin(), asked.end(), "layer3.0.downsample.0"), 1);
}

TEST(ResidualNetworks, ErrorsSayWhatIsWrong) {
  EXPECT_NE(
      error_of([] {
        model("resnet18", options({{"widths", std::vector<std::int64_t>{4, 4}}}), {1, 3, 32, 32});
      }).find("expected four widths, one for each stage, got [4, 4]"),
      std::string::npos);
  EXPECT_NE(error_of([] {
              model("mobilenet_v1", {}, {1, 784});
            }).find("got [1,784]"),
            std::string::npos);
}

}  // namespace
}  // namespace convscope
