// SPDX-License-Identifier: Apache-2.0
// loss_test.cpp: tests every loss of the table: its gradient, its values, and the compiled step.
#include "layers/losses/loss.h"

#include <gtest/gtest.h>

#include <cmath>

#include "framework/autograd/gradcheck.h"
#include "framework/ops/elementwise.h"
#include "framework/ops/softmax_cross_entropy.h"
#include "layers/conv2d/conv2d.h"
#include "layers/linear/linear.h"
#include "layers/plan/step_plan.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using testing::error_of;
using testing::leaf;
using testing::near;
using testing::normal;

Tensor labels_of(std::vector<std::int32_t> values) {
  return Tensor::from(std::span<const std::int32_t>(values),
                      {static_cast<std::int64_t>(values.size())});
}

double loss_of(const char* name, const Tensor& x, const Tensor& labels) {
  return loss_types().get(name)(Variable(x), labels).value().item();
}

// Returns logits around 3, each eighth one far outside.
Tensor logits_with_outliers(const Shape& shape) {
  const Tensor x = normal(shape);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    double& value = x.data<double>()[i];
    value = 3 + value * (i % 8 == 5 ? 20 : 1);
  }
  return x;
}

TEST(Loss, TheTableHasThem) {
  EXPECT_EQ(loss_types().names(),
            (std::vector<std::string>{"bce", "cross_entropy", "dice", "focal", "mse"}));
  EXPECT_EQ(&default_loss(), &loss_types().get("cross_entropy"));
}

TEST(Loss, GradientsMatchDifferences) {
  const Tensor labels = labels_of({2, 0, 4, 4, 1, 3});
  for (const auto& [name, type] : loss_types().entries()) {
    const auto& loss = type;  // clang's OpenMP captures no structured binding
    const auto f = [&](const std::vector<Variable>& v) { return scale(loss(v[0], labels), 30.0); };
    const GradcheckResult result =
        gradcheck(f, {leaf(logits_with_outliers({6, 5}))}, {.tolerance = 1e-6});
    EXPECT_TRUE(result.ok) << name << ": " << result.str();
  }
}

TEST(Loss, BinaryCrossEntropyIsExactWhereExpOverflows) {
  for (const double x : {0.0, 3.0, -3.0, 20.0, 90.0, 1000.0, -1000.0}) {
    const double want = std::log1p(std::exp(-std::abs(x))) + (x < 0 ? -x : 0);
    const double got = loss_of("bce", Tensor::full({1, 1}, x, DType::f32), labels_of({0}));
    EXPECT_NEAR(got, want, 1e-6 * std::max(1.0, want)) << x;
  }
  // Two outputs, the first of which is the target, and then the second.
  const Tensor x = Tensor::from({-200, 200}, {1, 2});
  EXPECT_NEAR(loss_of("bce", x, labels_of({0})), 200, 1e-4);
  EXPECT_EQ(loss_of("bce", x, labels_of({1})), 0);
}

TEST(Loss, MeanSquaredErrorIsThatOfOneHotTargets) {
  const Tensor x = Tensor::from({1, 2, -3, 0.5f, 0, 1}, {2, 3});
  EXPECT_NEAR(loss_of("mse", x, labels_of({1, 2})), (1 + 1 + 9 + 0.25 + 0 + 0) / 6, 1e-6);
}

TEST(Loss, DiceIsTheOverlapOfEachClassOverTheBatch) {
  // Values and gradients from PyTorch 2.15: softmax, then 1 - (2 I + 1) / (S + 1) by class.
  const Variable x =
      leaf(Tensor::from({1, 2, -3, 0.5f, 0, 1, -1, 2, 0.25f}, {3, 3}).to(DType::f64));
  const Variable loss = loss_types().get("dice")(x, labels_of({1, 2, 1}));
  EXPECT_NEAR(loss.value().item(), 0.25265760776756846, 1e-12);
  loss.backward();
  const double want[] = {0.04048540670193447,  -0.04106802382150901,  0.0005826171195745379,
                         0.04795987451937782,  0.016639263005290127,  -0.06459913752466795,
                         0.007095547807200756, -0.027257453343586553, 0.020161905536385808};
  for (std::int64_t i = 0; i < 9; ++i) EXPECT_NEAR(x.grad().data<double>()[i], want[i], 1e-12);
}

TEST(Loss, FocalIsThePapersFormula) {
  const Tensor x = Tensor::from({1, 2, -3, 0.5f, 0, 1}, {2, 3});
  double want = 0;
  for (const auto& [own, others] : {std::pair{2.0, std::pair{1.0, -3.0}}, {1.0, {0.5, 0.0}}}) {
    const double p = 1 / (1 + std::exp(others.first - own) + std::exp(others.second - own));
    want -= std::pow(1 - p, 2) * std::log(p) / 2;
  }
  EXPECT_NEAR(loss_of("focal", x, labels_of({1, 2})), want, 1e-6);
  EXPECT_EQ(loss_of("focal", Tensor::from({200, -200}, {1, 2}), labels_of({0})), 0);
}

TEST(Loss, ALabelOutsideOfTheClassesIsRefused) {
  for (const auto& [name, type] : loss_types().entries()) {
    const auto& loss = type;
    EXPECT_NE(error_of([&] {
                loss(Variable(Tensor::zeros({2, 3})), labels_of({0, 3}));
              }).find("expected labels in [0,3) because logits are [2,3], got 3 at index 1"),
              std::string::npos)
        << name;
  }
}

TEST(Loss, ACompiledStepGivesTheLossAndGradientsOfTheEagerStep) {
  const Tensor x = normal({7, 6}, DType::f32, 3);
  const Tensor labels = labels_of({0, 1, 2, 3, 3, 2, 1});
  for (const auto& [name, loss] : loss_types().entries()) {
    LayerContext context;
    Linear model({.in_features = 6, .out_features = 4}, context);
    std::string why;
    const auto plan =
        StepPlan::make(model, x.shape(), PlanMode::training, &why, {}, /*to_show=*/false, loss);
    ASSERT_NE(plan, nullptr) << why;
    EXPECT_EQ(plan->why_not_recordable(), "") << name;
    const double compiled = plan->forward(x, labels);
    plan->backward();
    const Tensor dw = model.weight().grad().clone();
    model.zero_grad();
    const Variable y = model.forward(Variable(x));
    const Variable eager = loss(y, labels);
    eager.backward();
    EXPECT_EQ(compiled, eager.value().item()) << name;
    EXPECT_EQ(plan->correct(), count_correct(y.value(), labels)) << name;
    EXPECT_TRUE(near(dw, model.weight().grad(), 1e-7, 1e-5)) << name;
  }
}

// Labels of [2,3,4] pixels in [0,5).
Tensor pixel_labels() {
  const Tensor labels = Tensor::zeros({2, 3, 4}, DType::i32);
  for (std::int64_t i = 0; i < 24; ++i) {
    labels.data<std::int32_t>()[i] = static_cast<std::int32_t>(i * i % 5);
  }
  return labels;
}

// Returns row (n, h, w) of the result for each pixel of x [N,K,H,W].
Tensor rows_of(const Tensor& x) {
  const std::int64_t classes = x.dim(1), pixels = x.dim(2) * x.dim(3);
  const Tensor rows = Tensor::empty({x.dim(0) * pixels, classes}, x.dtype());
  for (std::int64_t i = 0; i < rows.numel(); ++i) {
    const std::int64_t row = i / classes, k = i % classes;
    rows.data<double>()[i] = x.data<double>()[(row / pixels * classes + k) * pixels + row % pixels];
  }
  return rows;
}

TEST(PixelLoss, IsTheLossOfARowForEachPixel) {
  const Tensor x = normal({2, 5, 3, 4});
  const Tensor labels = pixel_labels();
  for (const auto& [name, loss] : loss_types().entries()) {
    Variable pixels = leaf(x), rows = leaf(rows_of(x));
    const Variable of_pixels = loss(pixels, labels), of_rows = loss(rows, labels.reshape({-1}));
    EXPECT_EQ(of_pixels.value().item(), of_rows.value().item()) << name;
    EXPECT_EQ(loss.correct(x, labels), count_correct(rows.value(), labels.reshape({-1}))) << name;
    of_pixels.backward();
    of_rows.backward();
    EXPECT_TRUE(near(rows_of(pixels.grad()), rows.grad(), 0, 0)) << name;
  }
}

TEST(PixelLoss, RefusesLabelsOfAnotherSizeOrClass) {
  const Tensor x = Tensor::zeros({2, 3, 4, 4});
  for (const auto& [name, type] : loss_types().entries()) {
    const auto& loss = type;
    EXPECT_NE(error_of([&] {
                loss(Variable(x), Tensor::zeros({2}, DType::i32));
              }).find("expected labels i32[2,4,4] because logits are"),
              std::string::npos)
        << name;
    const Tensor labels = Tensor::zeros({2, 4, 4}, DType::i32);
    labels.data<std::int32_t>()[7] = -1;
    EXPECT_NE(error_of([&] {
                loss(Variable(x), labels);
              }).find("expected labels in [0,3) because logits are [2,3,4,4], got -1 at index 7"),
              std::string::npos)
        << name;
  }
}

TEST(PixelLoss, ACompiledStepGivesTheLossAndGradientsOfTheEagerStep) {
  const Tensor x = normal({2, 3, 3, 4}, DType::f32, 3);
  const Tensor labels = pixel_labels();
  for (const auto& [name, loss] : loss_types().entries()) {
    LayerContext context;
    Conv2d model({.in_channels = 3, .out_channels = 5}, context);
    std::string why;
    const auto plan =
        StepPlan::make(model, x.shape(), PlanMode::training, &why, {}, /*to_show=*/false, loss);
    ASSERT_NE(plan, nullptr) << why;
    EXPECT_EQ(plan->labels().shape(), labels.shape());
    const double compiled = plan->forward(x, labels);
    plan->backward();
    const Tensor dw = model.weight().grad().clone();
    model.zero_grad();
    const Variable y = model.forward(Variable(x));
    const Variable eager = loss(y, labels);
    eager.backward();
    EXPECT_NEAR(compiled, eager.value().item(), 1e-6) << name;
    EXPECT_EQ(plan->correct(), loss.correct(y.value(), labels)) << name;
    EXPECT_TRUE(near(dw, model.weight().grad(), 1e-7, 1e-5)) << name;
  }
}

}  // namespace
}  // namespace convscope
