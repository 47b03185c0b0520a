// SPDX-License-Identifier: Apache-2.0
// autograd_test.cpp: the tape itself, with an operation defined here.
#include <gtest/gtest.h>

#include "framework/graph/simple_operation.h"

namespace convscope {
namespace {

class Times final : public SimpleOperation {
 public:
  Times() : SimpleOperation("times") {}
  Keeps keeps(const std::vector<Shape>&) const override { return {.inputs = true}; }
  void run(const Forward& a) const override { a.y.fill(a.x[0].item() * a.x[1].item()); }
  void run(const Backward& a) const override {
    for (const std::size_t i : {0, 1}) {
      if (a.dx[i].defined()) a.dx[i].fill(a.dy.item() * a.x[1 - i].item());
    }
  }
};

Variable times(const Variable& a, const Variable& b) {
  return apply(std::make_unique<Times>(), {a, b});
}

TEST(Autograd, SumsTheGradientsThatMeetAtAVariable) {
  Variable x(Tensor::full(Shape{}, 3.0), true);
  const Variable y = times(times(x, x), x);  // x^3
  y.backward();
  EXPECT_EQ(x.grad().item(), 27.0);
}

TEST(Autograd, SumsTheGradientsThatMeetInsideTheGraph) {
  Variable x(Tensor::full(Shape{}, 3.0), true);
  const Variable y = times(x, x);      // x^2, no leaf
  times(times(y, y), y).backward();    // x^6
  EXPECT_EQ(x.grad().item(), 1458.0);  // 6 x^5
}

TEST(Autograd, AccumulatesUntilZeroGrad) {
  Variable x(Tensor::full(Shape{}, 2.0), true);
  times(x, x).backward();
  times(x, x).backward();
  EXPECT_EQ(x.grad().item(), 8.0);
  x.zero_grad();
  EXPECT_EQ(static_cast<const Variable&>(x).grad().item(), 0.0);
  times(x, x).backward();
  EXPECT_EQ(x.grad().item(), 4.0);
}

TEST(Autograd, ComputesOnlyWhatIsAskedFor) {
  Variable x(Tensor::full(Shape{}, 2.0), true);
  Variable c(Tensor::full(Shape{}, 5.0));
  times(x, c).backward();
  EXPECT_EQ(x.grad().item(), 5.0);
  EXPECT_FALSE(c.grad().defined());
}

TEST(Autograd, ReportsASecondBackward) {
  Variable x(Tensor::full(Shape{}, 2.0), true);
  const Variable y = times(x, x);
  y.backward();
  try {
    y.backward();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("freed by an earlier backward"), std::string::npos);
  }
}

TEST(Autograd, RecordsNothingInsideNoGrad) {
  Variable x(Tensor::full(Shape{}, 2.0), true);
  const NoGrad no_grad;
  EXPECT_FALSE(times(x, x).requires_grad());
}

}  // namespace
}  // namespace convscope
