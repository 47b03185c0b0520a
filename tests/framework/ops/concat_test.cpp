// SPDX-License-Identifier: Apache-2.0
// concat_test.cpp: values and gradients of concat, eagerly and in a compiled step.
#include "framework/ops/concat/concat.h"

#include <gtest/gtest.h>

#include "framework/autograd/gradcheck.h"
#include "framework/ops/concat/slice.h"
#include "framework/ops/elementwise.h"
#include "framework/ops/reshape.h"
#include "layers/conv2d/conv2d.h"
#include "layers/linear/linear.h"
#include "layers/losses/cross_entropy.h"
#include "layers/plan/step_plan.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using testing::error_of;
using testing::leaf;
using testing::near;
using testing::normal;
using testing::on_every_machine;
using testing::same_bits;

TEST(Concat, JoinsAlongAnyAxis) {
  const Variable a(Tensor::from({1, 2, 3, 4}, {2, 2})), b(Tensor::from({5, 6}, {2, 1}));
  EXPECT_TRUE(near(concat({a, b}).value(), Tensor::from({1, 2, 5, 3, 4, 6}, {2, 3}), 0, 0));
  EXPECT_TRUE(
      near(concat({a, a}, 0).value(), Tensor::from({1, 2, 3, 4, 1, 2, 3, 4}, {4, 2}), 0, 0));
  EXPECT_TRUE(same_bits(concat({b, a}, -1).value(), concat({b, a}, 1).value()));
}

TEST(Concat, GivesEachInputItsPartOfTheGradient) {
  for (const int axis : {0, 1, 2}) {
    std::vector<Variable> inputs;
    for (int i = 0; i < 3; ++i) {
      Shape shape{2, 3, 2};
      shape.set(axis, i + 1);
      inputs.push_back(leaf(normal(shape, DType::f64, static_cast<std::uint64_t>(i))));
    }
    const auto f = [axis](const std::vector<Variable>& v) {
      return tanh(concat({v[0], v[1], v[2], v[0]}, axis));
    };
    EXPECT_TRUE(gradcheck(f, inputs).ok) << axis;
  }
}

TEST(Slice, IsTheInverseOfConcat) {
  const Variable a(normal({2, 1, 3}, DType::f64, 1)), b(normal({2, 4, 3}, DType::f64, 2));
  const Variable joined = concat({a, b});
  EXPECT_TRUE(same_bits(slice(joined, 1, 0, 1).value(), a.value()));
  EXPECT_TRUE(same_bits(slice(joined, -2, 1, 4).value(), b.value()));
  const auto f = [](const std::vector<Variable>& v) {
    return tanh(slice(v[0], 1, 1, 2) * slice(v[0], 1, 2, 2) + slice(v[0], 1, 3, 1));
  };
  EXPECT_TRUE(gradcheck(f, {leaf(normal({2, 4, 3}, DType::f64, 3))}).ok);
  EXPECT_NE(error_of([&] { slice(b, 1, 2, 3); })
                .find("[slice] expected a part of the 4 elements of axis 1 of x [2,4,3], got 3 "
                      "from 2"),
            std::string::npos);
}

TEST(Concat, NamesTheShapesThatDoNotFit) {
  const Variable a(Tensor::zeros({2, 2})), b(Tensor::zeros({3, 2}));
  EXPECT_NE(error_of([&] { concat({a, b}); }).find("[2,2] and [3,2]"), std::string::npos);
  EXPECT_NE(error_of([&] { concat({a}, 2); }).find("got 2"), std::string::npos);
}

// Two branches that read one value, joined, scaled per channel, and multiplied by a third one.
class Branches final : public Module {
 public:
  explicit Branches(LayerContext& context) {
    const auto conv = [&](const char* name, std::int64_t channels) {
      return add_child(name,
                       std::make_shared<Conv2d>(Conv2dOptions{.in_channels = 3,
                                                              .out_channels = channels,
                                                              .kernel_h = 3,
                                                              .kernel_w = 3,
                                                              .params = {.padding = {1, 1, 1, 1}}},
                                                context));
    };
    a_ = conv("a", 8);
    b_ = conv("b", 24);
    gate_ = add_parameter("gate", normal({1, 32, 1, 1}, DType::f32, 4));
    last_ =
        add_child("last", std::make_shared<Linear>(
                              LinearOptions{.in_features = 32 * 64, .out_features = 5}, context));
  }
  std::string kind() const override { return "branches"; }
  Variable forward(const Variable& x) override {
    const Variable joined = mul(concat({relu((*a_)(x)), (*b_)(x)}), gate_);
    return (*last_)(reshape(sigmoid(joined) * joined, {x.dim(0), 32 * 64}));
  }
  Shape output_shape(const Shape& input) const override { return {input[0], 5}; }

 private:
  std::shared_ptr<Module> a_, b_, last_;
  Variable gate_;
};

TEST(Concat, OfBranchesIsCompiled) {
  LayerContext context;
  Branches model(context);
  const Shape input{4, 3, 8, 8};
  std::string why;
  const auto plan = StepPlan::make(model, input, PlanMode::training, &why);
  ASSERT_NE(plan, nullptr) << why;
  EXPECT_NE(plan->text().find("concat"), std::string::npos);
  EXPECT_EQ(plan->why_not_recordable(), "");
  const Tensor x = normal(input, DType::f32, 9);
  const Tensor labels = Tensor::zeros({4}, DType::i32);
  const double loss = plan->forward(x, labels);
  plan->backward();
  std::vector<Tensor> gradients;
  for (const NamedParameter& p : model.parameters()) {
    gradients.push_back(p.variable.grad().clone());
  }
  model.zero_grad();
  const Variable eager = softmax_cross_entropy(model.forward(Variable(x)), labels);
  eager.backward();
  EXPECT_NEAR(loss, eager.value().item(), 1e-6);
  std::size_t i = 0;
  for (const NamedParameter& p : model.parameters()) {
    EXPECT_TRUE(near(gradients[i++], p.variable.grad(), 1e-5, 1e-4)) << p.name;
  }
}

}  // namespace
}  // namespace convscope
