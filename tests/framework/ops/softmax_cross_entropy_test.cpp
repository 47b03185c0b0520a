// SPDX-License-Identifier: Apache-2.0
// softmax_cross_entropy_test.cpp: tests the loss and its gradient, also for huge logits and for
// NaN.
#include "framework/ops/softmax_cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "framework/autograd/gradcheck.h"
#include "framework/ops/elementwise.h"
#include "layers/losses/cross_entropy.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using testing::error_of;
using testing::leaf;
using testing::near;
using testing::normal;
using testing::on_every_machine;

constexpr double kEps = 0x1p-24;

Tensor labels_of(std::initializer_list<std::int32_t> values) {
  return Tensor::from(std::span<const std::int32_t>(values.begin(), values.size()),
                      {static_cast<std::int64_t>(values.size())});
}

Tensor random_labels(std::int64_t n, std::uint32_t classes) {
  Tensor labels = Tensor::empty({n}, DType::i32);
  Generator random(9);
  for (std::int64_t i = 0; i < n; ++i) {
    labels.data<std::int32_t>()[i] = static_cast<std::int32_t>(random.below(classes));
  }
  return labels;
}

TEST(SoftmaxCrossEntropy, GradientMatchesDifferences) {
  const Tensor labels = labels_of({2, 0, 1, 2});
  const auto f = [&](const std::vector<Variable>& v) {
    return scale(softmax_cross_entropy(v[0], labels), 3.0);
  };
  const GradcheckResult result = gradcheck(f, {leaf(normal({4, 3}))});
  EXPECT_TRUE(result.ok) << result.str();
}

TEST(SoftmaxCrossEntropy, EqualLogitsCostTheLogOfTheNumberOfClasses) {
  const Variable loss =
      softmax_cross_entropy(Variable(Tensor::zeros({5, 10})), random_labels(5, 10));
  EXPECT_NEAR(loss.value().item(), std::log(10.0), 8 * kEps);  // of a number near 2
}

TEST(SoftmaxCrossEntropy, FloatLossAndGradientMatchDouble) {
  for (const std::int64_t classes : {1, 2, 10, 100, 1003}) {
    const Tensor logits = testing::uniform({67, classes}, -20, 20, DType::f32);
    const Tensor labels = random_labels(67, static_cast<std::uint32_t>(classes));
    const auto run = [&](DType dtype, bool gradient) {
      const Variable x = leaf(logits.to(dtype));
      const Variable loss = softmax_cross_entropy(x, labels);
      if (!gradient) return loss.value();
      loss.backward();
      return x.grad();
    };
    const Tensor loss = run(DType::f64, false);
    const Tensor gradient = run(DType::f64, true);
    on_every_machine([&] { return run(DType::f32, false); },
                     [&](const Tensor& y) { EXPECT_TRUE(near(y, loss, 8 * kEps, 8 * kEps)); });
    // Probabilities p have a relative error of a few eps, from exp, sum and reciprocal. At the
    // label the gradient is p - 1, which cancels, so its error is absolute.
    on_every_machine(
        [&] { return run(DType::f32, true); },
        [&](const Tensor& dx) { EXPECT_TRUE(near(dx, gradient, 8 * kEps / 67, 12 * kEps)); });
  }
}

TEST(SoftmaxCrossEntropy, HugeLogitsStayFinite) {
  const Tensor logits = Tensor::from({3e38f, -3e38f, 1000, -1000}, {2, 2});
  on_every_machine(
      [&] {
        return softmax_cross_entropy(Variable(logits), labels_of({0, 0})).value();
      },
      [](const Tensor& loss) { EXPECT_EQ(loss.item(), 0.0); });
  const Tensor wrong =
      softmax_cross_entropy(Variable(logits.slice_rows(1, 1)), labels_of({1})).value();
  EXPECT_EQ(wrong.item(), 2000.0);
  // The largest one need not be the first.
  const Tensor later = Tensor::from({-1000, 1000, 3e38f, 0, 500, 700}, {2, 3});
  on_every_machine(
      [&] {
        return softmax_cross_entropy(Variable(later), labels_of({2, 2})).value();
      },
      [](const Tensor& loss) { EXPECT_EQ(loss.item(), 0.0); });
}

TEST(SoftmaxCrossEntropy, NaNLogitsGiveANaNLoss) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor logits = Tensor::from({1, 2, nan, 0}, {2, 2});
  on_every_machine(
      [&] {
        return softmax_cross_entropy(Variable(logits), labels_of({0, 1})).value();
      },
      [](const Tensor& loss) { EXPECT_TRUE(std::isnan(loss.item())); });
}

TEST(SoftmaxCrossEntropy, TheFirstLabelOutOfRangeIsNamed) {
  const Variable x(Tensor::zeros({3, 10}));
  EXPECT_EQ(error_of([&] {
              softmax_cross_entropy(x, labels_of({1, 10, -1}));
            }),
            "[softmax_cross_entropy] expected labels in [0,10) because logits are [3,10], got 10 "
            "at index 1");
  EXPECT_NE(error_of([&] {
              softmax_cross_entropy(x, labels_of({1, 2}));
            }).find("expected labels i32[3]"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              softmax_cross_entropy(Variable(Tensor::zeros({0, 10})), labels_of({}));
            }).find("expected at least one row because the loss is a mean"),
            std::string::npos);
}

TEST(SoftmaxCrossEntropy, ChangingTheLabelsAfterwardsDoesNotChangeTheGradient) {
  const Tensor labels = labels_of({1});
  const Variable x = leaf(Tensor::zeros({1, 2}));
  const Variable loss = softmax_cross_entropy(x, labels);
  labels.data<std::int32_t>()[0] = 0;
  loss.backward();
  EXPECT_TRUE(near(x.grad(), Tensor::from({0.5f, -0.5f}, {1, 2}), kEps, 0));
}

TEST(Softmax, RowsSumToOne) {
  const Tensor x = normal({20, 37}, DType::f32);
  on_every_machine([&] { return softmax(x); },
                   [&](const Tensor& y) {
                     for (int n = 0; n < 20; ++n) {
                       double total = 0;
                       for (int k = 0; k < 37; ++k) total += y.at(n * 37 + k);
                       EXPECT_NEAR(total, 1, 8 * kEps);
                     }
                   });
}

TEST(Argmax, TakesTheFirstOfEqualsAndCountsRightAnswers) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::from({1, 3, 3, 5, 2, 5, nan, 9, nan}, {3, 3});
  EXPECT_TRUE(near(argmax(x), Tensor::from({1, 0, 0}, {3}), 0, 0));
  EXPECT_EQ(count_correct(x, labels_of({1, 2, 0})), 2);
}

}  // namespace
}  // namespace convscope
