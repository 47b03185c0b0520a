// SPDX-License-Identifier: Apache-2.0
// mobilenet_v2_test.cpp: tests MobileNet v2: the number, the names and the shapes of its
// parameters, and its compiled steps.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>

#include "layers/conv2d/conv2d.h"
#include "layers/losses/cross_entropy.h"
#include "layers/plan/step_plan.h"
#include "layers/sequential.h"
#include "tests/layers/layer_cases.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using testing::error_of;
using testing::normal;
using testing::options;
using testing::same_bits;

std::shared_ptr<Module> mobilenet(const Options& given, const Shape& input, int classes,
                                  const char* algorithm = "auto") {
  LayerContext context;
  context.seed = 3;
  context.conv_policy = [=](const std::string&) {
    return Conv2dPolicy{algorithm, algorithm, algorithm, "nchw"};  // bits are compared
  };
  const ModelType& type = model_types().get("mobilenet_v2");
  return type.build(complete_options(type.fields, given, "mobilenet_v2"), input, classes, context);
}

std::map<std::string, Shape> shapes_of(const Module& network) {
  std::map<std::string, Shape> out;
  for (const NamedParameter& p : network.parameters()) out[p.name] = p.variable.shape();
  for (const NamedTensor& b : network.buffers()) out[b.name] = b.tensor.shape();
  return out;
}

TEST(MobileNetV2, HasTheNumbersAndNamesOfTorchvision) {
  const auto network = mobilenet({}, {1, 3, 224, 224}, 1000);
  EXPECT_EQ(network->parameter_count(), 3504872);  // torchvision.models.mobilenet_v2
  EXPECT_EQ(network->kind(), "mobilenet_v2");
  const auto shapes = shapes_of(*network);
  EXPECT_EQ(shapes.at("features.0.0.weight"), (Shape{32, 3, 3, 3}));
  EXPECT_EQ(shapes.at("features.0.1.running_mean"), (Shape{32}));
  EXPECT_EQ(shapes.at("features.1.conv.0.0.weight"), (Shape{32, 1, 3, 3}));  // no expansion
  EXPECT_EQ(shapes.at("features.1.conv.1.weight"), (Shape{16, 32, 1, 1}));
  EXPECT_EQ(shapes.at("features.1.conv.2.bias"), (Shape{16}));
  EXPECT_EQ(shapes.at("features.3.conv.0.0.weight"), (Shape{144, 24, 1, 1}));
  EXPECT_EQ(shapes.at("features.3.conv.1.0.weight"), (Shape{144, 1, 3, 3}));
  EXPECT_EQ(shapes.at("features.17.conv.2.weight"), (Shape{320, 960, 1, 1}));
  EXPECT_EQ(shapes.at("features.17.conv.3.running_var"), (Shape{320}));
  EXPECT_EQ(shapes.at("features.18.0.weight"), (Shape{1280, 320, 1, 1}));
  EXPECT_EQ(shapes.at("classifier.1.weight"), (Shape{1000, 1280}));
  EXPECT_EQ(shapes.size(), 158U + 104U);  // parameters, and two buffers of each of 52 batch norms
  EXPECT_EQ(network->parameters().front().name, "features.0.0.weight");
  EXPECT_EQ(network->parameters().back().name, "classifier.1.bias");
  EXPECT_EQ(network->output_shape({5, 3, 224, 224}), (Shape{5, 1000}));
}

// Channel counts are rounded to multiples of 8, downwards by at most 10 %. The last convolution has
// at least as many channels as with width multiplier 1.
TEST(MobileNetV2, RoundsItsWidthsAsThePapersCode) {
  const auto wide = shapes_of(*mobilenet(options({{"width_multiplier", 1.4}}), {1, 3, 64, 64}, 10));
  EXPECT_EQ(wide.at("features.0.0.weight")[0], 48);       // 44.8
  EXPECT_EQ(wide.at("features.2.conv.2.weight")[0], 32);  // 33.6
  EXPECT_EQ(wide.at("features.18.0.weight")[0], 1792);
  const auto narrow =
      shapes_of(*mobilenet(options({{"width_multiplier", 0.35}}), {1, 3, 64, 64}, 10));
  EXPECT_EQ(narrow.at("features.0.0.weight")[0], 16);       // 11.2: 8 is too far below
  EXPECT_EQ(narrow.at("features.7.conv.2.weight")[0], 24);  // 22.4
  EXPECT_EQ(narrow.at("features.18.0.weight")[0], 1280);
}

TEST(MobileNetV2, TheShapesFileHasItsConvolutions) {
  const auto network = mobilenet({}, {8, 3, 224, 224}, 1000);
  std::set<std::string> seen, listed;
  network->walk({{8, 3, 224, 224}}, [&](Module& layer, const Shapes& inputs) {
    const auto* const conv = dynamic_cast<const Conv2d*>(&layer);
    if (conv != nullptr) seen.insert(conv->problem(inputs[0]).text());
  });
  std::ifstream file(std::string(CONVSCOPE_SOURCE_DIR) + "/experiments/shapes/mobilenet_v2.txt");
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line[0] != '#') listed.insert(Conv2dProblem::parse(line).text());
  }
  EXPECT_EQ(seen, listed);
}

const Shape kSmall{4, 3, 20, 17};

std::shared_ptr<Module> small(double dropout = 0, const char* algorithm = "auto") {
  return mobilenet(
      options({{"stem", std::string("cifar")}, {"width_multiplier", 0.1}, {"dropout", dropout}}),
      kSmall, 7, algorithm);
}

TEST(MobileNetV2, AddsTheInputWhereTheShapeStays) {
  const auto residuals_of = [](Sequential& features) {
    int out = 0;
    for (std::size_t i = 0; i < features.size(); ++i) {
      out += features.layer(i).kind() == "residual" ? 1 : 0;
    }
    return out;
  };
  const auto features_of = [](Module& network) -> Sequential& {
    return dynamic_cast<Sequential&>(dynamic_cast<Sequential&>(network).layer(0));
  };
  EXPECT_EQ(residuals_of(features_of(*small())), 11);  // features.1 has 8 channels on both sides
  const auto full = mobilenet({}, {1, 3, 64, 64}, 10);
  EXPECT_EQ(residuals_of(features_of(*full)), 10);
  // If the weight of a block's last batch norm is 0, the block returns its input: no activation
  // follows the sum.
  Module& block = features_of(*full).layer(3);
  for (const NamedParameter& p : block.parameters()) {
    if (p.name == "conv.3.weight") p.variable.value().zero();
  }
  const Variable x(normal({2, 24, 5, 4}, DType::f32));
  EXPECT_TRUE(same_bits(block.forward(x).value(), x.value()));
}

Tensor labels() {
  const Tensor out = Tensor::zeros({kSmall[0]}, DType::i32);
  for (std::int64_t i = 0; i < kSmall[0]; ++i)
    out.data<std::int32_t>()[i] = static_cast<std::int32_t>(i);
  return out;
}

// The forward pass has the same bits as the dynamic graph. If a block's input receives two
// gradients, the compiled step adds them in another order (layers/plan/README.md). This gradient
// and all gradients computed after it agree only up to rounding.
TEST(MobileNetV2, PlannedStepsAreThoseOfTheDynamicGraph) {
  const auto planned = small(0.2, "direct"), dynamic = small(0.2, "direct");
  std::string why;
  const auto plan = StepPlan::make(*planned, kSmall, PlanMode::training, &why);
  ASSERT_NE(plan, nullptr) << why;
  EXPECT_NE(plan->text().find("batch_norm2d + relu6"), std::string::npos) << plan->text();
  EXPECT_NE(plan->text().find("batch_norm2d + residual"), std::string::npos) << plan->text();
  for (int step = 0; step < 2; ++step) {
    const Tensor x = normal(kSmall, DType::f32, static_cast<std::uint64_t>(step) + 1);
    planned->set_step(step);
    dynamic->set_step(step);
    planned->zero_grad();
    dynamic->zero_grad();
    const Variable loss = softmax_cross_entropy(dynamic->forward(Variable(x)), labels());
    loss.backward();
    EXPECT_EQ(plan->forward(x, labels()), loss.value().item());
    plan->backward();
    const auto a = planned->parameters(), b = dynamic->parameters();
    for (std::size_t i = 0; i < a.size(); ++i) {
      double largest = 0;
      const Tensor right = b[i].variable.grad();
      for (std::int64_t j = 0; j < right.numel(); ++j) {
        largest = std::max(largest, std::abs(right.at(j)));
      }
      EXPECT_GT(largest, 0) << a[i].name;
      EXPECT_TRUE(testing::near(a[i].variable.grad(), right, 1e-3 * largest, 0)) << a[i].name;
    }
    const auto c = planned->buffers(), d = dynamic->buffers();
    for (std::size_t i = 0; i < c.size(); ++i) {
      EXPECT_TRUE(same_bits(c[i].tensor, d[i].tensor)) << c[i].name;
    }
  }
}

TEST(MobileNetV2, InferenceFoldsEveryBatchNormAndFusesEveryActivation) {
  const auto network = small();
  const Tensor x = normal(kSmall, DType::f32, 5);
  network->forward(Variable(x));  // changes the running statistics
  network->eval();
  const auto plan = StepPlan::make(*network, kSmall, PlanMode::inference, nullptr);
  ASSERT_NE(plan, nullptr);
  int curves = 0, sums = 0;
  for (const StepPlan::Line& line : plan->lines()) {
    EXPECT_FALSE(line.text.starts_with("batch_norm2d") || line.text.starts_with("relu6") ||
                 line.text == "add")
        << line.layer << " " << line.text;
    curves += line.text.ends_with("+ relu6");
    sums += line.text.ends_with("+ batch_norm2d + residual");
  }
  EXPECT_EQ(curves, 35);
  EXPECT_EQ(sums, 11);
  plan->prepare();
  const NoGrad no_grad;
  EXPECT_TRUE(testing::near(plan->infer(x), network->forward(Variable(x)).value(), 1e-4, 1e-4));
}

TEST(MobileNetV2, ErrorsSayWhatIsWrong) {
  EXPECT_NE(error_of([] {
              mobilenet({}, {1, 784}, 10);
            }).find("[mobilenet_v2] expected images [N,C,H,W], got [1,784]"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              mobilenet({}, {1, 3, 32, 32}, 0);
            }).find("expected at least one class, got 0"),
            std::string::npos);
}

}  // namespace
}  // namespace convscope
