// SPDX-License-Identifier: Apache-2.0
// autograd_gradcheck_test.cpp: the gradient checker must detect wrong gradients.
#include <gtest/gtest.h>

#include "framework/autograd/gradcheck.h"
#include "framework/graph/simple_operation.h"
#include "framework/ops/elementwise.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using testing::error_of;
using testing::leaf;
using testing::normal;

// x^2 with a gradient whose error at index 2 is `error`.
class Square final : public SimpleOperation {
 public:
  explicit Square(double error) : SimpleOperation("square"), error_(error) {}
  Keeps keeps(const std::vector<Shape>&) const override { return {.inputs = true}; }
  void run(const Forward& a) const override {
    a.y.copy_from(elementwise(BinaryOp::mul, a.x[0], a.x[0]));
  }
  void run(const Backward& a) const override {
    a.dx[0].copy_from(scale(elementwise(BinaryOp::mul, a.x[0], a.dy), 2.0));
    a.dx[0].data<double>()[2] += error_;
  }

 private:
  double error_;
};

Variable square(const Variable& x, double error) {
  return apply(std::make_unique<Square>(error), {x});
}

TEST(Gradcheck, AcceptsARightGradient) {
  const GradcheckResult result = gradcheck(
      [](const std::vector<Variable>& v) { return square(v[0], 0); }, {leaf(normal({5}))});
  EXPECT_TRUE(result.ok) << result.str();
  EXPECT_LT(result.max_error, 1e-8);
}

TEST(Gradcheck, FindsAWrongOneAndSaysWhere) {
  const GradcheckResult result =
      gradcheck([](const std::vector<Variable>& v) { return square(v[1], 1e-5); },
                {leaf(normal({5})), leaf(normal({5}))});
  EXPECT_FALSE(result.ok);
  EXPECT_EQ(result.input, 1);
  EXPECT_EQ(result.index, 2);
  EXPECT_NEAR(result.tape - result.difference, 1e-5, 1e-8);
}

TEST(Gradcheck, FindsAMissingGradient) {
  const GradcheckResult result = gradcheck(
      [](const std::vector<Variable>& v) { return mul(v[0], v[0].detach()); }, {leaf(normal({3}))});
  EXPECT_FALSE(result.ok);
}

TEST(Gradcheck, TreatsNaNAsWrong) {
  const GradcheckResult result = gradcheck([](const std::vector<Variable>& v) { return log(v[0]); },
                                           {leaf(Tensor::full({2}, -1.0, DType::f64))});
  EXPECT_FALSE(result.ok);
}

TEST(Gradcheck, LeavesValuesAndGradientsOfTheInputsAlone) {
  Variable x = leaf(normal({3}));
  const Tensor before = x.value().clone();
  gradcheck([](const std::vector<Variable>& v) { return square(v[0], 0); }, {x});
  EXPECT_TRUE(testing::same_bits(x.value(), before));
  EXPECT_FALSE(static_cast<const Variable&>(x).grad().defined());
}

TEST(Gradcheck, WantsDoubles) {
  EXPECT_EQ(error_of([] {
              gradcheck([](const std::vector<Variable>& v) { return v[0]; },
                        {leaf(Tensor::zeros({2}))});
            }),
            "[gradcheck] expected inputs of type f64, got f32[2] cpu");
}

}  // namespace
}  // namespace convscope
