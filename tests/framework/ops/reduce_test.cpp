// SPDX-License-Identifier: Apache-2.0
// reduce_test.cpp: sums, means and maxima over axes, and their gradients.
#include "framework/ops/reduce.h"

#include <gtest/gtest.h>

#include <limits>

#include "framework/autograd/gradcheck.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using testing::error_of;
using testing::leaf;
using testing::near;
using testing::normal;
using testing::on_every_machine;

constexpr double kEps = 0x1p-24;

// The textbook sum: adds every element to its output.
Tensor sum_reference(const Tensor& x, unsigned mask) {
  Shape shape;
  for (int axis = 0; axis < x.rank(); ++axis) {
    shape.push_back((mask >> axis & 1u) != 0 ? 1 : x.shape()[axis]);
  }
  Tensor y = Tensor::zeros(shape, DType::f64);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    std::int64_t place = 0;
    for (int axis = 0; axis < x.rank(); ++axis) {
      const std::int64_t index = i / x.shape().stride(axis) % x.shape()[axis];
      if (shape[axis] != 1) place += index * shape.stride(axis);
    }
    y.data<double>()[place] += x.at(i);
  }
  return y;
}

TEST(Reduce, SumsOverEverySetOfAxesMatchTheTextbook) {
  const Shape shape{3, 5, 4, 70};
  const Tensor x = normal(shape, DType::f32);
  for (unsigned mask = 1; mask < 16; ++mask) {
    const Tensor want = sum_reference(x, mask);
    // Each vector lane adds blocks of 64 terms, and there are at most 16 blocks. So the error is
    // below (64 + 16) eps sum|x|; here sum|x| is less than the number of terms.
    const double terms = static_cast<double>(x.numel() / want.numel());
    on_every_machine(
        [&] {
          Tensor y = Tensor::empty(want.shape(), DType::f32);
          sum_kernel.get(Device{})(x, mask, y);
          return y;
        },
        [&](const Tensor& y) { EXPECT_TRUE(near(y, want, 80 * kEps * terms, 0)) << mask; });
  }
}

TEST(Reduce, LongSumsStayAccurate) {
  // 0.1 is not exact in f32. A plain float loop over 3 million terms has an error of at least 1
  // percent.
  const Tensor x = Tensor::full({3, 1000003}, 0.1);
  const double want = 0.1f * 1000003.0;
  on_every_machine([&] { return sum(x, {1}); },
                   [&](const Tensor& y) {
                     for (int i = 0; i < 3; ++i) EXPECT_NEAR(y.at(i) / want, 1, 1e-6);
                   });
  on_every_machine([&] { return sum(x); },
                   [&](const Tensor& y) { EXPECT_NEAR(y.item() / (3 * want), 1, 1e-6); });
  const Tensor columns = Tensor::full({100003, 5}, 0.1);
  on_every_machine([&] { return sum(columns, {0}); },
                   [&](const Tensor& y) { EXPECT_NEAR(y.at(4) / (0.1f * 100003.0), 1, 2e-5); });
}

TEST(Reduce, GradientsMatchDifferences) {
  const std::pair<Axes, bool> cases[] = {{{}, false},    {{}, true},     {{0}, false},
                                         {{1}, true},    {{-1}, false},  {{0, 2}, false},
                                         {{0, 2}, true}, {{1, 2}, false}};
  for (const auto& [axes, keepdim] : cases) {
    const auto check = [&](const char* name, auto f) {
      const GradcheckResult result = gradcheck(f, {leaf(normal({3, 2, 4}))});
      EXPECT_TRUE(result.ok) << name << " " << result.str();
    };
    check("sum", [&](const std::vector<Variable>& v) { return sum(v[0], axes, keepdim); });
    check("mean", [&](const std::vector<Variable>& v) { return mean(v[0], axes, keepdim); });
    check("max", [&](const std::vector<Variable>& v) { return max(v[0], axes, keepdim); });
  }
}

TEST(Reduce, ShapesFollowKeepdim) {
  const Variable x(normal({2, 3, 4}));
  EXPECT_EQ(sum(x).shape(), Shape{});
  EXPECT_EQ(sum(x, {}, true).shape(), (Shape{1, 1, 1}));
  EXPECT_EQ(mean(x, {0, -1}).shape(), (Shape{3}));
  EXPECT_EQ(max(x, {1}, true).shape(), (Shape{2, 1, 4}));
}

TEST(Reduce, MeanAndMaxOfKnownNumbers) {
  const Variable x(Tensor::from({1, 5, 3, 2, 2, 8}, {2, 3}));
  EXPECT_TRUE(near(mean(x, {1}).value(), Tensor::from({3, 4}, {2}), 0, 0));
  EXPECT_TRUE(near(max(x, {0}).value(), Tensor::from({2, 5, 8}, {3}), 0, 0));
}

TEST(Reduce, MaxGivesTheGradientToTheFirstOfEqualsAndNaNWins) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Variable x = leaf(Tensor::from({4, 7, 7, 1, nan, 9}, {2, 3}));
  const Variable y = max(x, {1});
  EXPECT_TRUE(near(y.value(), Tensor::from({7, nan}, {2}), 0, 0));
  y.backward(Tensor::from({2, 3}, {2}));
  EXPECT_TRUE(near(x.grad(), Tensor::from({0, 2, 0, 0, 3, 0}, {2, 3}), 0, 0));
}

TEST(Reduce, EmptyTensorsSumToZero) {
  EXPECT_EQ(sum(Tensor::empty({0, 3})).item(), 0.0);
  EXPECT_TRUE(near(sum(Tensor::empty({0, 3}), {0}), Tensor::zeros({3}), 0, 0));
  EXPECT_EQ(sum(Tensor::empty({0, 3}), {1}).numel(), 0);
}

TEST(Reduce, ErrorsSayWhatIsWrongWithTheAxes) {
  const Tensor x = Tensor::zeros({2, 3});
  EXPECT_EQ(error_of([&] { sum(x, {2}); }),
            "[sum] expected axes in [-2,2) because x is [2,3], got 2");
  EXPECT_EQ(error_of([&] { sum(x, {1, -1}); }), "[sum] expected each axis once, got -1 twice");
  EXPECT_EQ(error_of([&] {
              max(Variable(Tensor::zeros({0, 3})), {0});
            }),
            "[max] expected at least one element along the axes, got [0,3]");
}

}  // namespace
}  // namespace convscope
