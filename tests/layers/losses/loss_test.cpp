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
#include "tests/layers/losses/loss_cases.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using testing::all_losses;
using testing::error_of;
using testing::leaf;
using testing::near;
using testing::normal;
using testing::options_of;
using testing::some_weights;

Tensor labels_of(std::vector<std::int32_t> values) {
  return Tensor::from(std::span<const std::int32_t>(values),
                      {static_cast<std::int64_t>(values.size())});
}

double loss_of(const char* name, const Tensor& x, const Tensor& labels) {
  return Loss(name)(Variable(x), labels).value().item();
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
  const Tensor x = normal({3, 4});
  EXPECT_EQ(Loss()(Variable(x), labels_of({0, 3, 1})).value().item(),
            loss_of("cross_entropy", x, labels_of({0, 3, 1})));
}

TEST(Loss, GradientsMatchDifferences) {
  const Tensor labels = labels_of({2, 0, 4, 4, 1, 3});
  for (const auto& [name, type] : all_losses(5)) {
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
  const Variable loss = Loss("dice")(x, labels_of({1, 2, 1}));
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

struct Computed {
  double loss = 0;
  std::vector<double> gradient;
};

// Options of cross_entropy and focal; w: class_weights, empty for 1.
struct Formula {
  std::vector<double> w = {};
  double smoothing = 0, gamma = 0;
  double alpha = -1;  // none
};

// Returns the loss and its gradient by the formula of PyTorch, in double: the sum over all r and k
// of c[r,k] q[r,k] -log p[r,k], divided by the sum of the labels' class weights.
Computed of_softmax(const Formula& f, const Tensor& x, const Tensor& labels) {
  const auto rows = static_cast<std::size_t>(x.dim(0)),
             classes = static_cast<std::size_t>(x.dim(1));
  Computed out{0, std::vector<double>(rows * classes)};
  double total = 0;
  for (std::size_t r = 0; r < rows; ++r) {
    const auto label = static_cast<std::size_t>(labels.data<std::int32_t>()[r]);
    const auto weight = [&](std::size_t k) {
      const double side = f.alpha < 0 ? 1 : k == 0 ? 1 - f.alpha : f.alpha;
      return side * (f.w.empty() ? 1 : f.w[k]);
    };
    total += f.w.empty() ? 1 : f.w[label];
    std::vector<double> log_p(classes), dlog_p(classes);
    double most = x.at(static_cast<std::int64_t>(r * classes)), sum = 0, all = 0;
    for (std::size_t k = 0; k < classes; ++k) {
      log_p[k] = x.at(static_cast<std::int64_t>(r * classes + k));
      most = std::max(most, log_p[k]);
    }
    for (const double value : log_p) sum += std::exp(value - most);
    for (double& value : log_p) value -= most + std::log(sum);
    for (std::size_t k = 0; k < classes; ++k) {
      const double target =
          (k == label ? 1 - f.smoothing : 0) + f.smoothing / static_cast<double>(classes);
      const double p = std::exp(log_p[k]), q = -std::expm1(log_p[k]);
      const double focus = f.gamma == 0 ? 1 : std::pow(q, f.gamma);
      const double slope =
          f.gamma == 0 || q == 0 ? 0 : f.gamma * std::pow(q, f.gamma - 1) * p * log_p[k];
      out.loss -= weight(k) * target * focus * log_p[k];
      dlog_p[k] = weight(k) * target * (slope - focus);
      all += dlog_p[k];
    }
    for (std::size_t k = 0; k < classes; ++k) {
      out.gradient[r * classes + k] = dlog_p[k] - std::exp(log_p[k]) * all;
    }
  }
  out.loss /= total;
  for (double& value : out.gradient) value /= total;
  return out;
}

TEST(LossOptions, AreTheFormulaInF32WithAnOffsetAndOutliers) {
  const std::vector<double> weights = some_weights(5);
  struct Case {
    const char* type;
    Options options;
    Formula formula;
  };
  const Case cases[] = {
      {"cross_entropy", options_of({{"label_smoothing", 0.1}}), {.smoothing = 0.1}},
      {"cross_entropy", options_of({{"class_weights", weights}}), {.w = weights}},
      {"cross_entropy",
       options_of({{"label_smoothing", 0.3}, {"class_weights", weights}}),
       {.w = weights, .smoothing = 0.3}},
      {"focal", {}, {.gamma = 2}},
      {"focal", options_of({{"gamma", 0.0}}), {}},
      {"focal", options_of({{"gamma", 0.5}}), {.gamma = 0.5}},
      {"focal",
       options_of({{"gamma", 1.5}, {"alpha", 0.25}, {"class_weights", weights}}),
       {.w = weights, .gamma = 1.5, .alpha = 0.25}}};
  const Tensor labels = labels_of({2, 0, 4, 4, 1, 3, 0, 2, 1, 1, 3, 4});
  // 1000 is far from 0, and each eighth logit is up to 60 away from the others.
  const Tensor x = logits_with_outliers({12, 5});
  for (std::int64_t i = 0; i < x.numel(); ++i) x.data<double>()[i] += 1000;
  const Tensor rounded = x.to(DType::f32);
  double range = 0;
  for (std::int64_t i = 0; i < x.numel(); ++i) range = std::max(range, std::abs(x.at(i) - 1003));
  for (const Case& one : cases) {
    SCOPED_TRACE(one.type);
    const Loss loss(one.type, one.options);
    for (const DType dtype : {DType::f64, DType::f32}) {
      const Tensor here = rounded.to(dtype);
      const Computed want = of_softmax(one.formula, here, labels);
      const Variable logits = leaf(here);
      const Variable got = loss(logits, labels);
      got.backward();
      // A logarithm of a probability is a difference of logits, each rounded once, and the largest
      // weight of a row in the mean is below 4. About 16 roundings follow.
      const double u = dtype == DType::f64 ? 0x1p-53 : 0x1p-24;
      EXPECT_NEAR(got.value().item(), want.loss, 16 * u * 4 * (1 + 2 * range)) << name_of(dtype);
      for (std::int64_t i = 0; i < x.numel(); ++i) {
        EXPECT_NEAR(logits.grad().at(i), want.gradient[static_cast<std::size_t>(i)],
                    16 * u * 4 * (1 + 2 * range) / 12)
            << name_of(dtype) << " " << i;
      }
    }
  }
}

TEST(LossOptions, HaveTheValuesOfPyTorch) {
  // Values and gradients from PyTorch 2.15: cross_entropy and binary_cross_entropy_with_logits.
  const std::vector<double> weights = {0.5, 2, 3};
  struct Case {
    const char* type;
    Options options;
    double loss;
    std::vector<double> gradient;
  };
  const Case cases[] = {{"cross_entropy",
                         options_of({{"label_smoothing", 0.1}}),
                         0.5361813008356516,
                         {0.078096606938843, -0.06861939217762282, -0.009477214761220137,
                          0.09128751746172167, 0.05099679663083807, -0.1422843140925598,
                          0.0024523232380204716, -0.03868224968639675, 0.03622992644837636}},
                        {"cross_entropy",
                         options_of({{"class_weights", weights}}),
                         0.4400986869984254,
                         {0.07646375832853208, -0.07786424091415291, 0.001400482585620835,
                          0.13165537959364215, 0.07985302423964895, -0.21150840383329111,
                          0.011625800870684213, -0.05220383306453056, 0.0405780321938464}},
                        {"cross_entropy",
                         options_of({{"label_smoothing", 0.1}, {"class_weights", weights}}),
                         0.5441895713007492,
                         {0.07344560796150862, -0.060548705573201654, -0.012896902388306954,
                          0.12415449578404816, 0.06722381932874198, -0.19137831511279016,
                          0.009147966815809466, -0.03510213445565949, 0.025954167639850072}},
                        {"bce",
                         options_of({{"pos_weight", weights}}),
                         0.6239746019950713,
                         {0.08122873095888944, -0.026489538227137264, 0.005269541464174087,
                          0.06916214791131718, 0.05555555555555555, -0.08964714045666503,
                          0.02988238015222168, -0.026489538227137264, 0.062464055653977564}}};
  for (const Case& one : cases) {
    const Variable x =
        leaf(Tensor::from({1, 2, -3, 0.5f, 0, 1, -1, 2, 0.25f}, {3, 3}).to(DType::f64));
    const Variable loss = Loss(one.type, one.options)(x, labels_of({1, 2, 1}));
    EXPECT_NEAR(loss.value().item(), one.loss, 1e-14) << one.type;
    loss.backward();
    for (std::size_t i = 0; i < 9; ++i) {
      EXPECT_NEAR(x.grad().at(static_cast<std::int64_t>(i)), one.gradient[i], 1e-15) << one.type;
    }
  }
}

TEST(LossOptions, LabelsWithoutWeightDoNotCount) {
  const Tensor x = logits_with_outliers({4, 3});
  const Loss loss("cross_entropy", options_of({{"class_weights", std::vector<double>{1, 0, 1}},
                                               {"label_smoothing", 0.1}}));
  const Variable none = leaf(x);
  const Variable zero = loss(none, labels_of({1, 1, 1, 1}));
  EXPECT_EQ(zero.value().item(), 0);
  zero.backward();
  EXPECT_TRUE(near(none.grad(), Tensor::zeros({4, 3}, DType::f64), 0, 0));
  const Variable some = leaf(x);
  loss(some, labels_of({0, 1, 2, 1})).backward();
  EXPECT_NE(some.grad().at(0), 0);
}

TEST(LossOptions, TheMeanOverPartsIsTheLossOfTheWholeBatch) {
  const Tensor x = logits_with_outliers({7, 4});
  const std::vector<std::int32_t> all = {0, 1, 2, 3, 3, 0, 0};
  for (const auto& [name, loss] : all_losses(4)) {
    if (name == "dice" || name == "sum") continue;  // Dice sums over a part
    const Variable whole = leaf(x);
    const Variable want = loss(whole, labels_of(all));
    want.backward();
    const Loss parts = loss.for_parts();
    parts.set_label_counts({3, 1, 1, 2});
    double got = 0;
    for (const auto& [first, rows] : {std::pair{0, 2}, {2, 5}}) {
      const Variable part = leaf(x.slice_rows(first, rows));
      const Variable own =
          parts(part, labels_of({all.begin() + first, all.begin() + first + rows}));
      own.backward();
      got += own.value().item() * rows / 7;
      EXPECT_TRUE(
          near(scale(part.grad(), rows / 7.0), whole.grad().slice_rows(first, rows), 1e-14, 1e-13))
          << name;
    }
    EXPECT_NEAR(got, want.value().item(), 1e-12) << name;
  }
}

TEST(LossOptions, AreChecked) {
  const auto error = [](const char* type, const char* name, const OptionValue& value) {
    return error_of([&] { Loss(type, options_of({{name, value}})); });
  };
  EXPECT_EQ(error("focal", "gama", 1.0),
            "[focal] unknown option 'gama'; did you mean 'gamma'? (known: gamma, alpha, "
            "class_weights)");
  EXPECT_EQ(error("cross_entropy", "label_smoothing", 1.5),
            "[cross_entropy] label_smoothing: expected 0 to 1, got 1.5");
  EXPECT_EQ(error("cross_entropy", "class_weights", std::vector<double>{1, -1}),
            "[cross_entropy] class_weights: expected at least 0, got -1.0");
  EXPECT_EQ(error("focal", "class_weights", std::vector<double>{0, 0}),
            "[class_weights] expected at least one weight above 0, got [0.0, 0.0]");
  EXPECT_EQ(error("cross_entropy", "class_weights", 2.0),
            "[cross_entropy] class_weights: expected a list of numbers, got '2.0'");
  for (const auto& [type, key] :
       {std::pair{"cross_entropy", "class_weights"}, {"bce", "pos_weight"}}) {
    const Loss loss(type, options_of({{key, std::vector<double>{1, 2}}}));
    const std::string wrong = error_of([&] {
      loss(Variable(Tensor::zeros({2, 3})), labels_of({0, 1}));
    });
    EXPECT_NE(wrong.find("because there are 3 classes, got 2"), std::string::npos) << wrong;
  }
}

TEST(Loss, ALabelOutsideOfTheClassesIsRefused) {
  for (const auto& [name, type] : all_losses(3)) {
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
  for (const auto& [name, loss] : all_losses(4)) {
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
  for (const auto& [name, loss] : all_losses(5)) {
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
  for (const auto& [name, type] : all_losses(3)) {
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
  for (const auto& [name, loss] : all_losses(5)) {
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
