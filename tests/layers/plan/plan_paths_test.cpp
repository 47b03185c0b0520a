// SPDX-License-Identifier: Apache-2.0
// plan_paths_test.cpp: tests values and parameters that several operations of a compiled step read.
// Their gradients are added, shared values are not fused away, and each layer is counted.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "framework/ops/elementwise.h"
#include "framework/ops/gemm/matmul.h"
#include "framework/ops/reduce.h"
#include "framework/ops/reshape.h"
#include "framework/random.h"
#include "layers/activation.h"
#include "layers/conv2d/algorithm.h"
#include "layers/flatten.h"
#include "layers/linear/linear.h"
#include "layers/losses/cross_entropy.h"
#include "layers/plan/step_plan.h"
#include "layers/residual.h"
#include "layers/sequential.h"
#include "tests/support/expect_error.h"

namespace convscope {
namespace {

constexpr std::int64_t kWidth = 12, kClasses = 5, kBatch = 6;

Tensor random_tensor(const Shape& shape, std::uint64_t stream) {
  const Tensor out = Tensor::empty(shape);
  Generator random(3, stream);
  for (std::int64_t i = 0; i < out.numel(); ++i) out.data<float>()[i] = random.normal();
  return out;
}

Tensor labels() {
  const Tensor out = Tensor::empty({kBatch}, DType::i32);
  for (std::int64_t i = 0; i < kBatch; ++i) {
    out.data<std::int32_t>()[i] = static_cast<std::int32_t>(i * 7 % kClasses);
  }
  return out;
}

std::shared_ptr<Linear> square(LayerContext& context) {
  return std::make_shared<Linear>(LinearOptions{.in_features = kWidth, .out_features = kWidth},
                                  context);
}

// f(relu(f(x))): one weight and one bias, used twice.
class Twice final : public Module {
 public:
  explicit Twice(LayerContext& context) : f_(add_child("f", square(context))) {}
  std::string kind() const override { return "twice"; }
  Variable forward(const Variable& x) override { return f_->forward(relu(f_->forward(x))); }
  Shape output_shape(const Shape& input) const override { return input; }

 private:
  std::shared_ptr<Linear> f_;
};

// Computes relu(h) + h with h = f(x). Two operations read h, so the layer f must not absorb the
// relu.
class Fork final : public Module {
 public:
  explicit Fork(LayerContext& context) : f_(add_child("f", square(context))) {}
  std::string kind() const override { return "fork"; }
  Variable forward(const Variable& x) override {
    const Variable h = f_->forward(x);
    return relu(h) + h;
  }
  Shape output_shape(const Shape& input) const override { return input; }

 private:
  std::shared_ptr<Linear> f_;
};

// Computes (h + g) + tanh(h) with h = f(x) and g = g(x). In the backward pass tanh writes the
// gradient of h first; the sum then has to add its gradient.
class Meeting final : public Module {
 public:
  explicit Meeting(LayerContext& context)
      : f_(add_child("f", square(context))), g_(add_child("g", square(context))) {}
  std::string kind() const override { return "meeting"; }
  Variable forward(const Variable& x) override {
    const Variable h = f_->forward(x);
    return (h + g_->forward(x)) + tanh(h);
  }
  Shape output_shape(const Shape& input) const override { return input; }

 private:
  std::shared_ptr<Linear> f_, g_;
};

// Computes with reductions and a product of matrices.
class Reducing final : public Module {
 public:
  explicit Reducing(LayerContext& context)
      : f_(add_child("f", square(context))),
        w_(add_parameter("w", random_tensor({kWidth, kWidth}, 4))) {}
  std::string kind() const override { return "reducing"; }
  Variable forward(const Variable& x) override {
    const Variable h = matmul(f_->forward(x), w_, Transpose::no, Transpose::yes);
    return (h - mean(h, {1}, true)) * max(h, {0}, true) + sum(h, {0});
  }
  Shape output_shape(const Shape& input) const override { return input; }

 private:
  std::shared_ptr<Linear> f_;
  Variable w_;
};

// Puts the module between two layers, so that the gradient of its input is needed, too.
template <class Middle>
std::shared_ptr<Module> network() {
  LayerContext context;
  context.seed = 5;
  auto out = std::make_shared<Sequential>();
  out->add("first", square(context));
  out->add("middle", std::make_shared<Middle>(context));
  out->add("last", std::make_shared<Linear>(
                       LinearOptions{.in_features = kWidth, .out_features = kClasses}, context));
  return out;
}

// Compares two compiled steps with two dynamic steps. The second step adds to the gradients of the
// first. Gradients with several terms are added in another order, so they agree up to a few
// roundings.
void expect_same_gradients(Module& planned, Module& dynamic, const Shape& input) {
  std::string why;
  const auto plan = StepPlan::make(planned, input, PlanMode::training, &why);
  ASSERT_NE(plan, nullptr) << why;
  for (std::uint64_t step = 0; step < 2; ++step) {
    const Tensor x = random_tensor(input, 10 + step);
    planned.zero_grad();
    dynamic.zero_grad();
    const Variable loss = softmax_cross_entropy(dynamic.forward(Variable(x)), labels());
    loss.backward();
    EXPECT_NEAR(plan->forward(x, labels()), loss.value().item(), 1e-6);
    plan->backward();
    const auto got = planned.parameters();
    const auto right = dynamic.parameters();
    ASSERT_EQ(got.size(), right.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      const Tensor& a = got[i].variable.grad();
      const Tensor& b = right[i].variable.grad();
      double largest = 0;
      for (std::int64_t j = 0; j < b.numel(); ++j) largest = std::max(largest, std::abs(b.at(j)));
      EXPECT_GT(largest, 0) << got[i].name;
      for (std::int64_t j = 0; j < b.numel(); ++j) {
        ASSERT_NEAR(a.at(j), b.at(j), 1e-5 * largest) << got[i].name << " " << j;
      }
    }
  }
}

TEST(PlanPaths, ALayerThatIsUsedTwiceHasTheGradientOfBothUses) {
  expect_same_gradients(*network<Twice>(), *network<Twice>(), {kBatch, kWidth});
}

TEST(PlanPaths, AValueWithTwoReadersIsNotFusedAway) {
  expect_same_gradients(*network<Fork>(), *network<Fork>(), {kBatch, kWidth});
}

TEST(PlanPaths, GradientsThatMeetAreAdded) {
  expect_same_gradients(*network<Meeting>(), *network<Meeting>(), {kBatch, kWidth});
}

TEST(PlanPaths, ReductionsAndProductsAreCompiled) {
  const auto model = network<Reducing>();
  expect_same_gradients(*model, *network<Reducing>(), {kBatch, kWidth});
  const auto plan = StepPlan::make(*model, {kBatch, kWidth}, PlanMode::training, nullptr);
  for (const StepPlan::Work& work : plan->works()) {
    EXPECT_EQ(work.text.find("dynamic"), std::string::npos) << work.text;
  }
}

// As soon as the step reports a gradient, other processes may receive it. So the step must not add
// to it later.
template <class Middle>
void expect_told_when_complete() {
  const std::shared_ptr<Module> model = network<Middle>();
  std::string why;
  const auto plan = StepPlan::make(*model, {kBatch, kWidth}, PlanMode::training, &why);
  ASSERT_NE(plan, nullptr) << why;
  const Tensor x = random_tensor({kBatch, kWidth}, 10);
  plan->forward(x, labels());
  std::vector<std::pair<const Variable::State*, Tensor>> told;
  plan->backward([&](const Variable& parameter) {
    told.emplace_back(parameter.state(), parameter.grad().clone());
  });
  EXPECT_EQ(told.size(), model->parameters().size()) << "each once";
  for (const NamedParameter& p : model->parameters()) {
    const auto at = std::find_if(told.begin(), told.end(),
                                 [&](const auto& one) { return one.first == p.variable.state(); });
    ASSERT_NE(at, told.end()) << p.name;
    const Tensor& last = p.variable.grad();
    for (std::int64_t j = 0; j < last.numel(); ++j) {
      ASSERT_EQ(at->second.at(j), last.at(j)) << p.name << " was told of too early";
    }
  }
  const auto all = model->parameters();
  const Variable::State* const first = told.front().first;
  EXPECT_TRUE(first == all[all.size() - 1].variable.state() ||
              first == all[all.size() - 2].variable.state())
      << "the last layer is the first to be complete";
}

TEST(PlanPaths, TellsOfAGradientWhenItIsComplete) {
  expect_told_when_complete<Twice>();
  expect_told_when_complete<Fork>();
  expect_told_when_complete<Meeting>();
}

// A block whose shortcut is a convolution.
std::shared_ptr<Module> residual_network() {
  LayerContext context;
  context.seed = 6;
  context.conv_policy = [](const std::string&) {
    return Conv2dPolicy{"direct", "direct", "direct", "nchw"};
  };
  auto shortcut = std::make_shared<Sequential>();
  shortcut->add("0",
                plain_conv({.in_channels = 20, .out_channels = 24, .kernel = 1}, "s", context));
  auto out = std::make_shared<Sequential>();
  out->add("block",
           std::make_shared<Residual>(
               std::vector<std::pair<std::string, std::shared_ptr<Module>>>{
                   {"c", plain_conv({.in_channels = 20, .out_channels = 24}, "c", context)}},
               shortcut));
  out->add("flat", std::make_shared<Flatten>());
  out->add("last", std::make_shared<Linear>(
                       LinearOptions{.in_features = 24 * 36, .out_features = kClasses}, context));
  return out;
}

TEST(PlanPaths, AShortcutWithALayerIsAddedToTheBody) {
  expect_same_gradients(*residual_network(), *residual_network(), {kBatch, 20, 6, 6});
}

TEST(PlanPaths, ALabelThatIsNoClassIsRefused) {
  const auto model = network<Fork>();
  const auto plan = StepPlan::make(*model, {kBatch, kWidth}, PlanMode::training, nullptr);
  for (const std::int32_t wrong : {-1, static_cast<std::int32_t>(kClasses)}) {
    const Tensor y = labels();
    y.data<std::int32_t>()[2] = wrong;
    EXPECT_THROW(plan->forward(random_tensor({kBatch, kWidth}, 1), y), Error) << wrong;
  }
}

// The two convolutions of the block need more workspace than the layers before and after the block.
TEST(PlanPaths, TheWorkspaceIsTheLargestOfAllCalls) {
  const auto model = residual_network();
  const auto plan = StepPlan::make(*model, {kBatch, 20, 6, 6}, PlanMode::training, nullptr);
  const Conv2dAlgorithm& algorithm = conv2d_algorithms(DeviceType::cpu).get("direct");
  std::int64_t largest = 0, least = 1 << 30;
  for (const char* text : {"n=6,c=20,h=6,w=6,k=24,r=3,s=3,pad=1", "n=6,c=20,h=6,w=6,k=24"}) {
    const Conv2dProblem problem = Conv2dProblem::parse(text);
    for (const Direction direction : {Direction::forward, Direction::backward_weight}) {
      const auto bytes =
          static_cast<std::int64_t>(algorithm.workspace_bytes(problem, direction) +
                                    algorithm.prepared_size(problem, direction, WeightUse::once));
      largest = std::max(largest, bytes);
      least = std::min(least, bytes);
    }
  }
  EXPECT_LT(least, largest / 2);  // otherwise the test shows nothing
  EXPECT_GE(plan->memory().workspace_bytes, largest);
}

TEST(PlanPaths, WhatLayersKeepIsWhatTheStepKeeps) {
  const auto model = network<Meeting>();
  const auto plan = StepPlan::make(*model, {kBatch, kWidth}, PlanMode::training, nullptr);
  std::int64_t all = 0;
  for (const StepPlan::Work& work : plan->works()) all += work.kept_bytes;
  EXPECT_GT(all, 0);
  EXPECT_EQ(all, plan->memory().kept_bytes);
}

// A layer that only calls a function, in each step: it reads x, so no graph records it.
class Tell final : public Module {
 public:
  explicit Tell(std::function<void()> callback) : callback_(std::move(callback)) {}
  std::string kind() const override { return "tell"; }
  Variable forward(const Variable& x) override {
    (void)x.value();
    callback_();
    return x;
  }
  Shape output_shape(const Shape& input) const override { return input; }

 private:
  std::function<void()> callback_;
};

// Adds a tensor that is new in each call.
class Drift final : public Module {
 public:
  std::string kind() const override { return "drift"; }
  Variable forward(const Variable& x) override {
    return x + Variable(Tensor::full({1}, static_cast<double>(++calls_)));
  }
  Shape output_shape(const Shape& input) const override { return input; }

 private:
  int calls_ = 0;
};

// Multiplies x by its parameter, in another shape. The reshape has no symbolic input, so it runs
// while the graph is recorded, and its result has the memory of the parameter.
class ScaleByView final : public Module {
 public:
  ScaleByView() : scale_(add_parameter("scale", Tensor::full({1, 1}, 2.0))) {}
  std::string kind() const override { return "scale_by_view"; }
  Variable forward(const Variable& x) override { return mul(x, reshape(scale_, {1})); }
  Shape output_shape(const Shape& input) const override { return input; }

 private:
  Variable scale_;
};

// Returns why a network of this layer and a linear one is not compiled.
std::string why_not_compiled(std::shared_ptr<Module> layer) {
  LayerContext context;
  Sequential net;
  net.add("layer", std::move(layer));
  net.add("f", std::make_shared<Linear>(
                   LinearOptions{.in_features = kWidth, .out_features = kClasses}, context));
  std::string why;
  EXPECT_EQ(StepPlan::make(net, {kBatch, kWidth}, PlanMode::training, &why), nullptr);
  return why;
}

// A graph would add the tensor of the first call in every step, and compute no gradient of a
// parameter of which it sees only a view.
TEST(PlanPaths, ATensorThatALayerMakesInEachCallIsNotCompiled) {
  for (const std::string& why : {why_not_compiled(std::make_shared<Drift>()),
                                 why_not_compiled(std::make_shared<ScaleByView>())}) {
    EXPECT_NE(why.find("neither a parameter nor a buffer"), std::string::npos) << why;
  }
}

// The first kernels of a recorded step read the loss and the number of correct images of the
// previous step. So no other value may use the memory of these two results, neither in a training
// step nor in an inference.
TEST(PlanPaths, TheLossStaysUntilTheNextOneIsThere) {
  for (const PlanMode mode : {PlanMode::evaluation, PlanMode::training}) {
    LayerContext context;
    std::unique_ptr<StepPlan> plan;
    double loss = 0;
    std::int64_t correct = 0;
    int asked = 0;
    auto net = std::make_shared<Sequential>();
    const auto look = [&](const char* name) {
      net->add(name, std::make_shared<Tell>([&] {
                 if (loss == 0) return;  // there is no previous step
                 ++asked;
                 EXPECT_EQ(plan->loss(), loss);
                 EXPECT_EQ(plan->correct(), correct);
               }));
    };
    const auto linear = [&](const char* name, std::int64_t from, std::int64_t to) {
      net->add(name, std::make_shared<Linear>(
                         LinearOptions{.in_features = from, .out_features = to}, context));
    };
    linear("a", kWidth, 2 * kWidth);
    look("behind_a");
    linear("b", 2 * kWidth, kWidth);
    look("behind_b");
    linear("c", kWidth, kClasses);
    look("behind_c");
    std::string why;
    plan = StepPlan::make(*net, {kBatch, kWidth}, mode, &why);
    ASSERT_NE(plan, nullptr) << why;
    plan->prepare();
    for (const std::uint64_t step : {1, 2, 3}) {
      plan->queue_forward(random_tensor({kBatch, kWidth}, step), labels());
      loss = plan->loss();
      correct = plan->correct();
      EXPECT_GT(loss, 0);
    }
    EXPECT_EQ(asked, 2 * 3);
  }
}

}  // namespace
}  // namespace convscope
