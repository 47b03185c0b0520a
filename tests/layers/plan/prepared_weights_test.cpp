// SPDX-License-Identifier: Apache-2.0
// prepared_weights_test.cpp: tests when a compiled step prepares the weights of an algorithm: in
// each training step, but only once for all calls of inference. The test notices if outdated
// weights are used.
#include <gtest/gtest.h>

#include <cstring>

#include "framework/ops/reshape.h"
#include "layers/conv2d/conv2d.h"
#include "layers/plan/step_plan.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

int preparations = 0;
bool is_used = false;  // the algorithm supports nothing in other tests
bool forgets = false;  // the deliberate mistake: a preparation that does nothing

const Conv2dAlgorithm& reference() { return conv2d_algorithms(DeviceType::cpu).get("reference"); }

// Registers the reference, which reads a copy of w, and returns its name. Only the problems of this
// test are supported.
const char* copying_algorithm() {
  constexpr const char* kName = "copying";
  if (conv2d_algorithms(DeviceType::cpu).find(kName) != nullptr) return kName;
  Conv2dAlgorithm algorithm = reference();
  algorithm.name = kName;
  algorithm.auto_ok = false;
  algorithm.supports = [](const Conv2dProblem& z, Direction) -> Support {
    if (z.dtype != DType::f32) {
      return Support::no(cat("expects elements of type f32, got ", name_of(z.dtype)));
    }
    return is_used ? Support{} : Support::no("expects the problems of one test");
  };
  algorithm.prepared_bytes = [](const Conv2dProblem& z, Direction) {
    return static_cast<std::size_t>(z.w_shape().numel()) * sizeof(float);
  };
  algorithm.prepare_weights = [](const Conv2dPrepareArgs& args) {
    ++preparations;
    if (forgets) return;
    std::memcpy(args.prepared, args.w,
                static_cast<std::size_t>(args.problem.w_shape().numel()) * sizeof(float));
  };
  algorithm.forward = [](const Conv2dForwardArgs& args) {
    reference().forward({args.problem, args.x, args.prepared, args.b, args.y, nullptr});
  };
  algorithm.backward_data = [](const Conv2dBackwardDataArgs& args) {
    reference().backward_data({args.problem, args.dy, args.prepared, args.dx, nullptr});
  };
  register_conv2d_algorithm(algorithm, __FILE__);
  return kName;
}

struct UsedHere {
  UsedHere() { is_used = true; }
  ~UsedHere() { is_used = false; }
};

// The network has two convolutions with the same algorithm. The second one needs the gradient of
// its input.
class Pair final : public Module {
 public:
  explicit Pair(const char* algorithm)
      : name_(algorithm),
        first_(add_parameter("first", testing::normal({4, 3, 3, 3}, DType::f32, 1))),
        second_(add_parameter("second", testing::normal({2, 4, 3, 3}, DType::f32, 2))) {}
  std::string kind() const override { return "pair"; }
  Variable forward(const Variable& x) override {
    Variable y = x;
    for (const Variable& w : {first_, second_})
      y = conv2d(y, w, {}, {}, Conv2dPolicy{name_, name_, name_});
    const Shape& last = y.shape();
    return reshape(y, {last[0], last.numel() / last[0]});
  }
  Shape output_shape(const Shape& input) const override { return input; }

 private:
  std::string name_;
  Variable first_, second_;
};

const Shape kInput{2, 3, 6, 6};

Tensor labels() {
  const Tensor out = Tensor::zeros({kInput[0]}, DType::i32);
  out.data<std::int32_t>()[1] = 5;
  return out;
}

void update(Module& model) {
  for (const NamedParameter& parameter : model.parameters()) {
    float* const w = parameter.variable.value().data<float>();
    const float* const dw = parameter.variable.grad().data<float>();
    for (std::int64_t i = 0; i < parameter.variable.value().numel(); ++i) w[i] -= 0.1f * dw[i];
  }
}

// Loss of a second step, after one update.
double second_loss(const char* algorithm, bool forgets_then) {
  Pair model(algorithm);
  const auto plan = StepPlan::make(model, kInput, PlanMode::training, nullptr);
  const Tensor x = testing::normal(kInput, DType::f32, 3);
  plan->forward(x, labels());
  plan->backward();
  update(model);
  forgets = forgets_then;
  const double loss = plan->forward(x, labels());
  forgets = false;
  return loss;
}

TEST(PreparedWeights, AreMadeAnewInEachStepOfTraining) {
  const UsedHere used;
  const char* const copying = copying_algorithm();
  const double expected = second_loss("reference", false);
  preparations = 0;
  EXPECT_EQ(second_loss(copying, false), expected);
  // Two layers forward, twice; dx of the second layer, once.
  EXPECT_EQ(preparations, 5);
  EXPECT_NE(second_loss(copying, true), expected);  // outdated weights are detected
}

TEST(PreparedWeights, AreMadeOnceForManyCallsOfInference) {
  const UsedHere used;
  Pair model(copying_algorithm());
  Pair plain("reference");
  const auto plan = StepPlan::make(model, kInput, PlanMode::inference, nullptr);
  const auto expected = StepPlan::make(plain, kInput, PlanMode::inference, nullptr);
  preparations = 0;
  plan->prepare();
  expected->prepare();
  const Tensor x = testing::normal(kInput, DType::f32, 3);
  for (int call = 0; call < 2; ++call) {
    EXPECT_TRUE(testing::same_bits(plan->infer(x), expected->infer(x)));
  }
  EXPECT_EQ(preparations, 2);  // two layers
  for (Module* const one : {static_cast<Module*>(&model), static_cast<Module*>(&plain)}) {
    for (const NamedParameter& parameter : one->parameters()) parameter.variable.value().fill(0.25);
  }
  EXPECT_FALSE(testing::same_bits(plan->infer(x), expected->infer(x)));  // until prepare()
  plan->prepare();
  EXPECT_TRUE(testing::same_bits(plan->infer(x), expected->infer(x)));
}

}  // namespace
}  // namespace convscope
