// SPDX-License-Identifier: Apache-2.0
// multi_module_test.cpp: tests modules with several inputs and outputs: eager, recorded in a
// compiled step, and as one operation that runs eagerly inside of a compiled step.
#include <gtest/gtest.h>

#include "framework/ops/elementwise.h"
#include "layers/linear/linear.h"
#include "layers/losses/cross_entropy.h"
#include "layers/plan/step_plan.h"
#include "layers/sequential.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using testing::error_of;
using testing::near;
using testing::normal;

constexpr std::int64_t kWidth = 6;
const Shape kInput{5, kWidth};

// Computes the two outputs x + s and 2 x, with s = sigmoid(x).
class Fork final : public MultiModule {
 public:
  Fork() : MultiModule(/*inputs=*/1) {}
  std::string kind() const override { return "fork"; }
  Variables forward(const Variables& in) override {
    return {in[0] + sigmoid(in[0]), scale(in[0], 2)};
  }
  Shapes output_shapes(const Shapes& in) const override { return {in[0], in[0]}; }
};

// Gates x by a side image, and changes both: x' = w x sigmoid(side), side' = side + x'.
class Gate final : public MultiModule {
 public:
  // reads: forward() reads the numbers of x, so a compiled step runs the gate eagerly.
  explicit Gate(bool reads) : MultiModule(/*inputs=*/2), reads_(reads) {
    w_ = add_parameter("weight", normal({kWidth}, DType::f32, 7));
  }
  std::string kind() const override { return "gate"; }
  Variables forward(const Variables& in) override {
    if (reads_) (void)in[0].value();
    const Variable x = in[0] * w_ * sigmoid(in[1]);
    return {x, in[1] + x};
  }
  Shapes output_shapes(const Shapes& in) const override { return in; }

 private:
  bool reads_;
  Variable w_;
};

// Joins two inputs: their product, or only the first one.
class Join final : public MultiModule {
 public:
  explicit Join(bool both) : MultiModule(/*inputs=*/2), both_(both) {}
  std::string kind() const override { return "join"; }
  Variables forward(const Variables& in) override { return {both_ ? in[0] * in[1] : relu(in[0])}; }
  Shapes output_shapes(const Shapes& in) const override { return {in[0]}; }

 private:
  bool both_;
};

std::shared_ptr<Sequential> network(bool reads, bool both = true) {
  LayerContext context;
  const auto linear = [&](std::int64_t outputs) {
    return std::make_shared<Linear>(LinearOptions{.in_features = kWidth, .out_features = outputs},
                                    context);
  };
  auto out = std::make_shared<Sequential>();
  out->add("first", linear(kWidth));
  out->add("fork", std::make_shared<Fork>());
  out->add("gate", std::make_shared<Gate>(reads));
  out->add("join", std::make_shared<Join>(both));
  out->add("last", linear(3));
  return out;
}

Tensor labels() { return Tensor::from({0, 2, 1, 1, 0}, {kInput[0]}).to(DType::i32); }

// Compares a compiled step with an eager one.
void expect_same_step(bool reads, bool both) {
  SCOPED_TRACE(cat("reads ", reads, ", both ", both));
  const auto planned = network(reads, both), dynamic = network(reads, both);
  std::string why;
  const auto plan = StepPlan::make(*planned, kInput, PlanMode::training, &why);
  ASSERT_NE(plan, nullptr) << why;
  EXPECT_EQ(plan->why_not_recordable().empty(), !reads) << plan->text();
  EXPECT_EQ(plan->text().find("gate as a dynamic graph") != std::string::npos, reads);
  for (std::uint64_t step = 0; step < 2; ++step) {
    const Tensor x = normal(kInput, DType::f32, 20 + step);
    dynamic->zero_grad();
    const Variable loss = softmax_cross_entropy(dynamic->forward(Variable(x)), labels());
    loss.backward();
    EXPECT_NEAR(plan->forward(x, labels()), loss.value().item(), 1e-6);
    plan->backward();
    const auto got = planned->parameters(), want = dynamic->parameters();
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      const Tensor& expected = want[i].variable.grad();
      EXPECT_NE(expected.at(0), 0) << want[i].name;
      EXPECT_TRUE(near(got[i].variable.grad(), expected, 1e-6, 1e-5)) << want[i].name;
    }
  }
}

TEST(MultiModule, ACompiledStepHasTheGradientsOfAnEagerStep) {
  expect_same_step(/*reads=*/false, /*both=*/true);
  expect_same_step(/*reads=*/true, /*both=*/true);
}

// The step must not ask for the gradient of an output that nothing reads.
TEST(MultiModule, AnOutputMayBeIgnored) {
  expect_same_step(/*reads=*/false, /*both=*/false);
  expect_same_step(/*reads=*/true, /*both=*/false);
}

TEST(MultiModule, InferenceIsCompiled) {
  for (const bool reads : {false, true}) {
    const auto model = network(reads);
    std::string why;
    const auto plan = StepPlan::make(*model, kInput, PlanMode::inference, &why);
    ASSERT_NE(plan, nullptr) << why;
    plan->prepare();
    const Tensor x = normal(kInput, DType::f32, 3);
    EXPECT_TRUE(near(plan->infer(x), model->forward(Variable(x)).value(), 1e-6, 1e-5));
  }
}

TEST(MultiModule, LayersHaveNamesAndShapes) {
  const auto model = network(/*reads=*/false);
  std::vector<std::string> seen;
  model->walk({kInput}, [&](Module& layer, const Shapes& inputs) {
    seen.push_back(cat(layer.kind(), " ", inputs.size(), " ", layer.output_shapes(inputs).size()));
  });
  EXPECT_EQ(seen, (std::vector<std::string>{"linear 1 1", "fork 1 2", "gate 2 2", "join 2 1",
                                            "linear 1 1"}));
  EXPECT_EQ(model->output_shape(kInput), (Shape{5, 3}));
  const auto plan = StepPlan::make(*model, kInput, PlanMode::training, nullptr);
  EXPECT_NE(plan->text().find("\ngate  "), std::string::npos) << plan->text();
}

TEST(MultiModule, AWrongNumberOfInputsIsAnError) {
  Gate gate(/*reads=*/false);
  const Variable x(normal(kInput, DType::f32));
  EXPECT_EQ(gate({x, x}).size(), 2u);
  EXPECT_NE(error_of([&] { gate(x); }).find("[gate] expected 2 inputs, got 1"), std::string::npos);
  Fork fork;
  Module& module = fork;
  EXPECT_NE(error_of([&] {
              module.forward(x);
            }).find("[fork] expected one output because one variable is asked for, got 2"),
            std::string::npos);
  LayerContext context;
  Linear linear({.in_features = kWidth, .out_features = 2}, context);
  EXPECT_NE(error_of([&] {
              linear(Variables{x, x});
            }).find("[linear] expected 1 input, got 2"),
            std::string::npos);
}

}  // namespace
}  // namespace convscope
