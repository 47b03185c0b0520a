// SPDX-License-Identifier: Apache-2.0
// relu6_test.cpp: tests the layer relu6. Compiled steps have the same bits as the dynamic graph,
// whichever operation absorbs relu6, and a fused relu6 gives the same result as a separate layer.
#include <gtest/gtest.h>

#include <cmath>

#include "framework/ops/bounded_relu/bounded_relu.h"
#include "framework/simd/cpu_isa.h"
#include "layers/losses/cross_entropy.h"
#include "layers/plan/step_plan.h"
#include "layers/sequential.h"
#include "tests/layers/layer_cases.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using testing::normal;
using testing::options;
using testing::same_bits;

using Ints = std::vector<std::int64_t>;

LayerSpec layer(const char* type, const char* name, Options given = {}) {
  return {.type = type, .name = name, .options = std::move(given)};
}

LayerSpec conv(const char* name, std::int64_t k) {
  return layer("conv2d", name,
               options({{"out_channels", k}, {"kernel_size", Ints{3}}, {"padding", Ints{1}}}));
}

const Shape kImages{5, 20, 9, 7};  // too many channels for samples in the lanes
using testing::kDirect;

std::shared_ptr<Module> network(std::vector<LayerSpec> specs, const Shape& input,
                                const char* algorithm = kDirect) {
  specs.push_back(layer("flatten", "flat"));
  specs.push_back(layer("linear", "f", options({{"out_features", std::int64_t{7}}})));
  LayerContext context;
  context.seed = 5;
  context.conv_policy = [=](const std::string&) {
    return Conv2dPolicy{algorithm, algorithm, algorithm, "nchw"};
  };
  auto out = build_layers(specs, input, context);
  // Large enough that both bounds cut.
  for (const NamedParameter& p : out->parameters()) {
    if (p.name == "b.weight" || p.name == "c.bias" || p.name == "g.bias")
      p.variable.value().fill(9);
  }
  return out;
}

Tensor images(const Shape& shape, std::uint64_t seed) {
  Tensor x = normal(shape, DType::f32, seed);
  for (std::int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] *= 8;
  return x;
}

Tensor labels(std::int64_t n) {
  const Tensor out = Tensor::zeros({n}, DType::i32);
  for (std::int64_t i = 0; i < n; ++i) {
    out.data<std::int32_t>()[i] = static_cast<std::int32_t>(i * 3 % 7);
  }
  return out;
}

struct Case {
  std::vector<LayerSpec> specs;
  const char* text;  // of the operation that absorbs relu6 in training
};
std::vector<Case> cases() {
  return {
      {{conv("c", 24), layer("relu6", "r")}, "conv2d direct + relu6"},
      {{conv("c", 24), layer("batch_norm2d", "b"), layer("relu6", "r")}, "batch_norm2d + relu6"},
      {{conv("c", 24), layer("relu", "r0"), layer("relu6", "r")}, "relu6"},
      {{layer("flatten", "f0"), layer("linear", "g", options({{"out_features", std::int64_t{9}}})),
        layer("relu6", "r")},
       "relu6"}};
}

TEST(Relu6, PlannedStepsHaveTheBitsOfTheDynamicGraph) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.text);
    const auto planned = network(c.specs, kImages), dynamic = network(c.specs, kImages);
    std::string why;
    const auto plan = StepPlan::make(*planned, kImages, PlanMode::training, &why);
    ASSERT_NE(plan, nullptr) << why;
    EXPECT_NE(plan->text().find(c.text), std::string::npos) << plan->text();
    const Tensor y = labels(kImages[0]);
    for (std::uint64_t step = 0; step < 2; ++step) {
      const Tensor x = images(kImages, step);
      planned->zero_grad();
      dynamic->zero_grad();
      const Variable loss = softmax_cross_entropy(dynamic->forward(Variable(x)), y);
      loss.backward();
      EXPECT_EQ(plan->forward(x, y), loss.value().item());
      plan->backward();
      const auto a = planned->parameters(), b = dynamic->parameters();
      for (std::size_t i = 0; i < a.size(); ++i) {
        EXPECT_TRUE(same_bits(a[i].variable.grad(), b[i].variable.grad())) << a[i].name;
      }
    }
  }
}

// Returns how many outputs of the activation are 6, and how many are 0.
std::pair<int, int> cut(Module& net, const Tensor& x, std::size_t layers) {
  const NoGrad no_grad;
  auto& all = dynamic_cast<Sequential&>(net);
  Variable v(x);
  for (std::size_t i = 0; i < layers; ++i) v = all.layer(i).forward(v);
  std::pair<int, int> out{0, 0};
  for (std::int64_t i = 0; i < v.value().numel(); ++i) {
    EXPECT_LE(v.value().at(i), 6);
    out.first += v.value().at(i) == 6;
    out.second += v.value().at(i) == 0;
  }
  return out;
}

TEST(Relu6, BothBoundsCutInTheseCases) {
  for (const Case& c : cases()) {
    const auto net = network(c.specs, kImages);
    const auto [at_six, at_zero] = cut(*net, images(kImages, 0), c.specs.size());
    EXPECT_GT(at_six, 10) << c.text;
    EXPECT_GT(at_zero, 0) << c.text;
  }
}

TEST(Relu6, InferenceTakesItOverToo) {
  for (const bool norm : {false, true}) {
    std::vector<LayerSpec> specs{conv("c", 24)};
    if (norm) specs.push_back(layer("batch_norm2d", "b"));
    specs.push_back(layer("relu6", "r"));
    const auto net = network(specs, kImages);
    const Tensor x = images(kImages, 3);
    net->forward(Variable(x));  // changes the running statistics
    net->eval();
    const auto plan = StepPlan::make(*net, kImages, PlanMode::inference, nullptr);
    ASSERT_NE(plan, nullptr);
    EXPECT_NE(
        plan->text().find(norm ? "conv2d direct + batch_norm2d + relu6" : "conv2d direct + relu6"),
        std::string::npos)
        << plan->text();
    plan->prepare();
    const NoGrad no_grad;
    const Tensor want = net->forward(Variable(x)).value();
    if (norm) {  // its factor goes into the weights: other rounding errors
      EXPECT_TRUE(testing::near(plan->infer(x), want, 1e-4, 1e-4));
    } else {
      EXPECT_TRUE(same_bits(plan->infer(x), want));
    }
  }
}

// A batch norm that no convolution absorbs.
TEST(Relu6, ABatchNormAloneTakesItInInference) {
  const auto net = network({layer("batch_norm2d", "b"), layer("relu6", "r")}, kImages);
  const Tensor x = images(kImages, 3);
  net->eval();
  const auto plan = StepPlan::make(*net, kImages, PlanMode::inference, nullptr);
  ASSERT_NE(plan, nullptr);
  EXPECT_NE(plan->text().find("batch_norm2d + relu6"), std::string::npos) << plan->text();
  plan->prepare();
  const NoGrad no_grad;
  EXPECT_TRUE(same_bits(plan->infer(x), net->forward(Variable(x)).value()));
}

// The fused chain of convolutions with few channels supports only a relu without an upper bound. So
// convolutions with relu6 do not join such a chain.
TEST(Relu6, IsNoPartOfAChainOfFewChannels) {
  const Shape input{16, 1, 12, 12};
  for (const char* const activation : {"relu", "relu6"}) {
    const auto net = network({conv("c", 6), layer(activation, "r"),
                              layer("max_pool2d", "p", options({{"kernel_size", Ints{2}}}))},
                             input, "auto");
    const auto plan = StepPlan::make(*net, input, PlanMode::inference, nullptr);
    ASSERT_NE(plan, nullptr);
    const bool chained = std::string(activation) == "relu";
    bool pools_alone = false;
    for (const StepPlan::Line& line : plan->lines()) pools_alone |= line.text == "max_pool2d";
    EXPECT_EQ(pools_alone, !chained) << plan->text();
    EXPECT_EQ(plan->text().find("+ relu6") == std::string::npos, chained) << plan->text();
    plan->prepare();
    const Tensor x = images(input, 1);
    const NoGrad no_grad;
    EXPECT_TRUE(testing::near(plan->infer(x), net->forward(Variable(x)).value(), 1e-4, 1e-4));
  }
}

}  // namespace
}  // namespace convscope
