// SPDX-License-Identifier: Apache-2.0
// elementwise_test.cpp: element-wise operations, their broadcasting and gradients.
#include "framework/ops/elementwise.h"

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
using testing::uniform;

constexpr double kEps = 0x1p-24;  // maximum relative rounding error of an f32 operation
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct BinaryCase {
  const char* name;
  BinaryOp op;
  Variable (*f)(const Variable&, const Variable&);
};
const BinaryCase kBinary[] = {{"add", BinaryOp::add, add},
                              {"sub", BinaryOp::sub, sub},
                              {"mul", BinaryOp::mul, mul},
                              {"div", BinaryOp::div, div}};

struct UnaryCase {
  const char* name;
  UnaryOp op;
  Variable (*f)(const Variable&);
  float low, high;  // the interval where the function is smooth
  double ulps;      // error bound of the f32 kernel
};
const UnaryCase kUnary[] = {{"neg", UnaryOp::neg, neg, -3, 3, 0},
                            {"exp", UnaryOp::exp, exp, -80, 80, 4},
                            {"log", UnaryOp::log, log, 0.1f, 9, 2},
                            {"sqrt", UnaryOp::sqrt, sqrt, 0.1f, 9, 1},
                            {"relu", UnaryOp::relu, relu, -3, 3, 0},
                            {"tanh", UnaryOp::tanh, tanh, -12, 12, 8},
                            {"sigmoid", UnaryOp::sigmoid, sigmoid, -80, 80, 8}};

const std::pair<Shape, Shape> kShapes[] = {{{2, 3}, {2, 3}},
                                           {{2, 3}, {3}},
                                           {{3}, {2, 3}},
                                           {{2, 1}, {1, 3}},
                                           {{2, 3, 2, 2}, {3, 1, 1}},
                                           {{}, {2, 2}},
                                           {{1}, {}},
                                           {{2, 1, 3}, {2, 2, 1}},
                                           {{1, 2, 1, 2}, {2, 1, 3, 1}},
                                           {{2, 2, 3, 1}, {1, 3, 4}}};

TEST(Elementwise, GradientsOfBinaryOperationsMatchDifferencesForEveryBroadcast) {
  for (const BinaryCase& c : kBinary) {
    for (const auto& [shape_a, shape_b] : kShapes) {
      const auto f = [&](const std::vector<Variable>& v) { return c.f(v[0], v[1]); };
      const GradcheckResult result =
          gradcheck(f, {leaf(normal(shape_a)), leaf(uniform(shape_b, 0.5f, 2.0f))});
      EXPECT_TRUE(result.ok) << c.name << shape_a.str() << shape_b.str() << " " << result.str();
    }
  }
}

TEST(Elementwise, BroadcastsLikeNumPy) {
  const Tensor a = Tensor::from({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor row = Tensor::from({10, 20, 30}, {3});
  const Tensor column = Tensor::from({100, 200}, {2, 1});
  EXPECT_TRUE(near(elementwise(BinaryOp::add, a, row),
                   Tensor::from({11, 22, 33, 14, 25, 36}, {2, 3}), 0, 0));
  EXPECT_TRUE(near(elementwise(BinaryOp::sub, column, row),
                   Tensor::from({90, 80, 70, 190, 180, 170}, {2, 3}), 0, 0));
}

TEST(Elementwise, FloatKernelsOfBinaryOperationsMatchDouble) {
  const std::pair<Shape, Shape> shapes[] = {{{70, 1001}, {70, 1001}},
                                            {{37, 19, 41}, {19, 1}},
                                            {{129, 513}, {513}},
                                            {{40, 1, 33}, {65, 1}}};
  for (const BinaryCase& c : kBinary) {
    for (const auto& [shape_a, shape_b] : shapes) {
      const Tensor a = normal(shape_a, DType::f32);
      const Tensor b = uniform(shape_b, 0.5f, 2.0f, DType::f32);
      const Tensor want = elementwise(c.op, a.to(DType::f64), b.to(DType::f64));
      on_every_machine([&] { return elementwise(c.op, a, b); },
                       [&](const Tensor& y) { EXPECT_TRUE(near(y, want, 0, kEps)) << c.name; });
    }
  }
}

TEST(Elementwise, GradientsOfUnaryOperationsMatchDifferences) {
  for (const UnaryCase& c : kUnary) {
    const float low = std::max(c.low, -3.0f);
    const auto f = [&](const std::vector<Variable>& v) { return c.f(v[0]); };
    const GradcheckResult result =
        gradcheck(f, {leaf(uniform({3, 7}, low, std::min(c.high, 3.0f)))});
    EXPECT_TRUE(result.ok) << c.name << " " << result.str();
  }
}

TEST(Elementwise, FloatKernelsOfUnaryOperationsMatchDouble) {
  for (const UnaryCase& c : kUnary) {
    const Tensor x = uniform({3, 40001}, c.low, c.high, DType::f32);
    const Tensor want = elementwise(c.op, x.to(DType::f64));
    on_every_machine(
        [&] { return elementwise(c.op, x); },
        [&](const Tensor& y) { EXPECT_TRUE(near(y, want, 0, c.ulps * kEps)) << c.name; });
  }
}

TEST(Elementwise, TanhKeepsItsRelativeAccuracyNearZero) {
  const Tensor x = uniform({5001}, -1e-3f, 1e-3f, DType::f32);
  const Tensor want = elementwise(UnaryOp::tanh, x.to(DType::f64));
  on_every_machine([&] { return elementwise(UnaryOp::tanh, x); },
                   [&](const Tensor& y) { EXPECT_TRUE(near(y, want, 0, 8 * kEps)); });
}

TEST(Elementwise, FloatGradientsOfUnaryOperationsMatchDouble) {
  for (const UnaryCase& c : kUnary) {
    const float low = std::max(c.low, -3.0f);
    const Tensor x = uniform({2, 20011}, low, std::min(c.high, 3.0f), DType::f32);
    const Tensor dy = normal(x.shape(), DType::f32, 5);
    const auto gradient = [&](DType dtype) {
      Variable v = leaf(x.to(dtype));
      c.f(v).backward(dy.to(dtype));
      return v.grad();
    };
    const Tensor want = gradient(DType::f64);
    // The gradients are 1 - y^2 and y (1 - y). Where y is near 1, these differences cancel, so an
    // error of a few eps in y becomes an absolute error of the gradient.
    on_every_machine(
        [&] { return gradient(DType::f32); },
        [&](const Tensor& dx) { EXPECT_TRUE(near(dx, want, 64 * kEps, 16 * kEps)) << c.name; });
  }
}

TEST(Elementwise, SpecialValuesComeOutAsInTheCLibrary) {
  const Tensor x =
      Tensor::from({kNan, kInf, -kInf, 0.0f, 89.5f, -110.0f, 88.5f, -100.0f, -0.0f}, {9});
  for (const UnaryCase& c : kUnary) {
    if (c.op == UnaryOp::log || c.op == UnaryOp::sqrt) continue;
    Tensor want = elementwise(c.op, x.to(DType::f64)).to(DType::f32);  // overflow becomes infinity
    // Results near the smallest subnormal, 2^-149, have an absolute error. Sigmoid returns 0 where
    // exp(-x) overflows.
    const double absolute = c.op == UnaryOp::sigmoid ? 0x1p-126 : 0x1p-148;
    on_every_machine(
        [&] { return elementwise(c.op, x); },
        [&](const Tensor& y) { EXPECT_TRUE(near(y, want, absolute, 8 * kEps)) << c.name; });
  }
}

TEST(Elementwise, ReluGradientIsZeroAtZeroAndPassesNaN) {
  Variable x = leaf(Tensor::from({-1, 0, 2, kNan}, {4}));
  relu(x).backward(Tensor::from({5, 6, 7, 8}, {4}));
  EXPECT_TRUE(near(x.grad(), Tensor::from({0, 0, 7, 8}, {4}), 0, 0));
}

TEST(Elementwise, OneVariableOnBothSidesGetsBothGradients) {
  for (const BinaryCase& c : kBinary) {
    const auto f = [&](const std::vector<Variable>& v) { return c.f(v[0], v[0]); };
    const GradcheckResult result = gradcheck(f, {leaf(uniform({2, 3}, 0.5f, 2.0f))});
    EXPECT_TRUE(result.ok) << c.name << " " << result.str();
  }
}

TEST(Elementwise, BackwardNeverChangesTheGradientThatWasGiven) {
  Variable a = leaf(normal({4}));
  const Tensor dy = normal({4}, DType::f64, 2);
  const Tensor copy = dy.clone();
  add(a, Variable(normal({4}))).backward(dy);
  add(a, Variable(normal({4}))).backward(dy);
  EXPECT_TRUE(testing::same_bits(dy, copy));
}

TEST(Elementwise, EmptyTensorsWork) {
  Variable x = leaf(Tensor::empty({0, 3}));
  Variable b = leaf(Tensor::from({1, 2, 3}, {3}));
  relu(x + b).backward(Tensor::empty({0, 3}));
  EXPECT_EQ(x.grad().shape(), (Shape{0, 3}));
  EXPECT_TRUE(near(b.grad(), Tensor::from({0, 0, 0}, {3}), 0, 0));
}

TEST(Elementwise, ErrorsNameOperationAndShapes) {
  const Tensor a = Tensor::zeros({2, 3});
  EXPECT_EQ(error_of([&] {
              elementwise(BinaryOp::mul, a, Tensor::zeros({2, 4}));
            }),
            "[mul] expected shapes that are equal or 1 at each axis, counted from the last, got "
            "[2,3] and [2,4]");
  EXPECT_NE(error_of([&] {
              elementwise(BinaryOp::add, a, Tensor::zeros({2, 3}, DType::f64));
            }).find("[add] expected two operands of one type"),
            std::string::npos);
  EXPECT_EQ(error_of([&] { elementwise(UnaryOp::tanh, Tensor::zeros({2}, DType::i32)); }),
            "[tanh] expected x of type f32 or f64, got i32[2] cpu");
}

}  // namespace
}  // namespace convscope
