// SPDX-License-Identifier: Apache-2.0
// layers_test.cpp: tests Linear, activations, flatten, dropout and Sequential, and building layers
// from a list.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "framework/autograd/gradcheck.h"
#include "layers/dropout.h"
#include "layers/linear/linear.h"
#include "layers/sequential.h"
#include "tests/layers/layer_cases.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using testing::build_layer;
using testing::error_of;
using testing::leaf;
using testing::near;
using testing::normal;
using testing::on_every_machine;
using testing::options;
using testing::same_bits;

TEST(Linear, WeightsAreUniformWithinOneOverTheRootOfFanIn) {
  LayerContext context;
  Linear layer({.in_features = 400, .out_features = 300}, context);
  const Tensor w = layer.parameters()[0].variable.value();
  EXPECT_EQ(w.shape(), (Shape{300, 400}));
  double largest = 0, square = 0;
  for (std::int64_t i = 0; i < w.numel(); ++i) {
    largest = std::max(largest, std::abs(w.at(i)));
    square += w.at(i) * w.at(i) / static_cast<double>(w.numel());
  }
  EXPECT_LE(largest, 0.05);
  EXPECT_GT(largest, 0.0499);
  EXPECT_NEAR(square, 0.05 * 0.05 / 3, 2e-5);
}

TEST(Linear, KaimingNormalHasDeviationRootTwoOverFanInAndNoBias) {
  LayerContext context;
  Linear layer({.in_features = 200, .out_features = 300, .init = "kaiming_normal"}, context);
  const Tensor w = layer.parameters()[0].variable.value();
  double square = 0;
  for (std::int64_t i = 0; i < w.numel(); ++i) square += w.at(i) * w.at(i);
  EXPECT_NEAR(square / static_cast<double>(w.numel()), 0.01, 3e-4);
  EXPECT_EQ(layer.parameters()[1].variable.value().at(7), 0.0);
}

TEST(Linear, SeedAndPlaceInTheNetworkDecideTheWeights) {
  const auto first_weight = [](std::uint64_t seed, std::uint64_t stream) {
    LayerContext context;
    context.seed = seed;
    context.next_stream = stream;
    return Linear({.in_features = 3, .out_features = 2}, context).parameters()[0].variable.value();
  };
  EXPECT_TRUE(same_bits(first_weight(1, 1), first_weight(1, 1)));
  EXPECT_FALSE(same_bits(first_weight(1, 1), first_weight(2, 1)));
  EXPECT_FALSE(same_bits(first_weight(1, 1), first_weight(1, 3)));
}

TEST(Linear, AsksForAFlattenLayerInFrontOfImages) {
  EXPECT_EQ(error_of([] {
              build_layer("linear", options({{"out_features", std::int64_t{10}}}), {1, 16, 4, 4});
            }),
            "[linear] expected x [N,I], got [1,16,4,4]; a flatten layer before it makes it [N,I]");
}

TEST(Activation, EachKindComputesItsFunction) {
  const Variable x(Tensor::from({-1, 0.5f}, {1, 2}));
  EXPECT_TRUE(near(build_layer("relu", {}, {1, 2})->forward(x).value(),
                   Tensor::from({0, 0.5f}, {1, 2}), 0, 0));
  EXPECT_TRUE(near(build_layer("relu6", {}, {1, 3})
                       ->forward(Variable(Tensor::from({-1, 0.5f, 7}, {1, 3})))
                       .value(),
                   Tensor::from({0, 0.5f, 6}, {1, 3}), 0, 0));
  EXPECT_NEAR(build_layer("tanh", {}, {1, 2})->forward(x).value().at(0), std::tanh(-1.0), 1e-6);
  EXPECT_NEAR(build_layer("sigmoid", {}, {1, 2})->forward(x).value().at(1),
              1 / (1 + std::exp(-0.5)), 1e-6);
}

TEST(Flatten, KeepsElementsAndGradients) {
  const auto layer = build_layer("flatten", {}, {1, 3, 2, 2});
  const Variable x = leaf(normal({2, 3, 2, 2}, DType::f32));
  const Variable y = layer->forward(x);
  EXPECT_EQ(y.shape(), (Shape{2, 12}));
  EXPECT_TRUE(y.value().shares_memory_with(x.value()));
  y.backward(y.value());
  EXPECT_TRUE(same_bits(x.grad(), x.value()));
  EXPECT_EQ(layer->forward(Variable(Tensor::empty({0, 3, 2, 2}))).shape(), (Shape{0, 12}));
}

Tensor dropped(double p, std::uint64_t seed, std::uint64_t stream, std::int64_t step) {
  return dropout(Variable(Tensor::full({100, 1003}, 1.0)),
                 {.seed = seed, .stream = stream, .step = step, .p = p})
      .value();
}

TEST(Dropout, DropsTheWantedShareAndKeepsTheMean) {
  for (double p : {0.1, 0.5, 0.9}) {
    const Tensor y = dropped(p, 3, 4, 5);
    double zeros = 0, total = 0;
    for (std::int64_t i = 0; i < y.numel(); ++i) {
      zeros += y.at(i) == 0 ? 1 : 0;
      total += y.at(i);
    }
    const auto n = static_cast<double>(y.numel());
    const double deviation = std::sqrt(p * (1 - p) / n);
    EXPECT_NEAR(zeros / n, p, 5 * deviation);
    EXPECT_NEAR(total / n, 1, 5 * deviation / (1 - p));
  }
}

TEST(Dropout, TheMaskDependsOnSeedLayerAndStepOnly) {
  const Tensor y = dropped(0.5, 3, 4, 5);
  on_every_machine([&] { return dropped(0.5, 3, 4, 5); },
                   [&](const Tensor& again) { EXPECT_TRUE(same_bits(again, y)); });
  EXPECT_FALSE(same_bits(dropped(0.5, 4, 4, 5), y));
  EXPECT_FALSE(same_bits(dropped(0.5, 3, 5, 5), y));
  EXPECT_FALSE(same_bits(dropped(0.5, 3, 4, 6), y));
}

// A recorded step adds a number in memory to the step.
TEST(Dropout, AddsTheStepThatStandsInMemory) {
  const std::int64_t base = 2;
  const Tensor x = Tensor::full({100, 100}, 1.0);
  const Tensor y = Tensor::empty(x.shape()), later = Tensor::empty(x.shape());
  const auto& kernel = dropout_kernel.get(Device{});
  kernel(x, {.seed = 3, .stream = 4, .step = 5, .base_step = &base, .p = 0.5}, y);
  kernel(x, {.seed = 3, .stream = 4, .step = 7, .base_step = nullptr, .p = 0.5}, later);
  EXPECT_TRUE(same_bits(y, later));
}

TEST(Dropout, TheBackwardPassUsesTheSameMask) {
  const auto f = [](const std::vector<Variable>& v) {
    return dropout(v[0], {.seed = 1, .stream = 2, .step = 3, .p = 0.4});
  };
  const GradcheckResult result = gradcheck(f, {leaf(normal({3, 7}))});
  EXPECT_TRUE(result.ok) << result.str();
}

// A negative probability would scale every element down and drop none.
TEST(Dropout, RefusesWhatIsNoProbability) {
  const Variable x(Tensor::full({2, 2}, 1.0));
  for (const double p : {-0.1, -1e-300, 1.0, 1.5, std::nan("")}) {
    EXPECT_ERROR(ErrorKind::kInvalid, "[dropout] expected p in [0,1)", Dropout(p, 1, 2));
    EXPECT_ERROR(ErrorKind::kInvalid, "[dropout] expected p in [0,1)", dropout(x, {.p = p}));
  }
  EXPECT_ERROR(ErrorKind::kConfig, "expected 0 to 0.999999, got -0.1",
               build_layer("dropout", options({{"p", -0.1}}), {1, 64}));
}

TEST(Dropout, FollowsTheStepOfTheNetworkAndRestsInEvalMode) {
  Sequential network;
  network.add("d", build_layer("dropout", options({{"p", 0.5}}), {1, 64}));
  const Variable x(Tensor::full({1, 64}, 1.0));
  network.set_step(7);
  const Tensor seven = network.forward(x).value();
  network.set_step(8);
  EXPECT_FALSE(same_bits(network.forward(x).value(), seven));
  network.set_step(7);
  EXPECT_TRUE(same_bits(network.forward(x).value(), seven));
  network.eval();
  EXPECT_TRUE(network.forward(x).value().shares_memory_with(x.value()));
}

TEST(BuildLayers, NamesLayersAndPassesShapesAlong) {
  LayerContext context;
  const auto network = build_layers(
      {{.type = "flatten", .name = "", .options = {}},
       {.type = "linear", .name = "f1", .options = options({{"out_features", std::int64_t{5}}})},
       {.type = "relu", .name = "", .options = {}},
       {.type = "linear", .name = "", .options = options({{"out_features", std::int64_t{2}}})}},
      {1, 3, 2, 2}, context);
  std::vector<std::string> names;
  for (const NamedParameter& p : network->parameters()) names.push_back(p.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"f1.weight", "f1.bias", "linear_2.weight", "linear_2.bias"}));
  EXPECT_EQ(network->output_shape({7, 3, 2, 2}), (Shape{7, 2}));
  EXPECT_EQ(network->forward(Variable(Tensor::zeros({7, 3, 2, 2}))).shape(), (Shape{7, 2}));
}

TEST(BuildLayers, ErrorsNameTheLayerAndTheShapeThatReachedIt) {
  LayerContext context;
  const auto build = [&](const LayerSpec& spec) {
    return error_of([&] { build_layers({spec}, {1, 1, 28, 28}, context); });
  };
  EXPECT_EQ(build({.type = "linear",
                   .name = "f1",
                   .options = options({{"out_features", std::int64_t{5}}})}),
            "[layers] layer 'f1' (linear, input [1,1,28,28]): [linear] expected x [N,I], got "
            "[1,1,28,28]; a flatten layer before it makes it [N,I]");
  EXPECT_NE(build({.type = "linaer", .name = "f1", .options = {}}).find("did you mean 'linear'?"),
            std::string::npos);
  EXPECT_NE(
      build(
          {.type = "linear", .name = "f1", .options = options({{"out_feature", std::int64_t{5}}})})
          .find("unknown option 'out_feature'; did you mean 'out_features'?"),
      std::string::npos);
  EXPECT_NE(build({.type = "linear", .name = "f1", .options = {}})
                .find("expected a value for 'out_features'"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              build_layers({{.type = "relu", .name = "a", .options = {}},
                            {.type = "relu", .name = "a", .options = {}}},
                           {1, 2}, context);
            }).find("got 'a' twice"),
            std::string::npos);
}

TEST(Registry, EveryFieldOfEveryLayerAndModelIsDocumentedAndItsDefaultFits) {
  const auto check = [](const std::string& name, const std::string& doc,
                        const std::vector<OptionField>& fields) {
    EXPECT_FALSE(doc.empty()) << name;
    std::set<std::string> seen;
    for (const OptionField& field : fields) {
      EXPECT_TRUE(seen.insert(field.name).second) << name << "." << field.name << " twice";
      EXPECT_FALSE(field.doc.empty()) << name << "." << field.name;
      if (!field.required) {
        EXPECT_EQ(refusal_of(field, field.default_value), "") << name << "." << field.name;
      }
    }
  };
  for (const auto& [name, type] : layer_types().entries()) check(name, type.doc, type.fields);
  for (const auto& [name, type] : model_types().entries()) check(name, type.doc, type.fields);
  for (const char* name : {"linear", "relu", "tanh", "sigmoid", "max_pool2d", "avg_pool2d",
                           "adaptive_avg_pool2d", "batch_norm2d", "dropout", "flatten"}) {
    EXPECT_NE(layer_types().find(name), nullptr) << name;
  }
}

}  // namespace
}  // namespace convscope
