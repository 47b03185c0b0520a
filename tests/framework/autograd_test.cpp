// SPDX-License-Identifier: Apache-2.0
// autograd_test.cpp: the tape itself, with one-line operations defined here.
#include <gtest/gtest.h>

#include "framework/autograd/variable.h"

namespace convscope {
namespace {

Variable times(const Variable& a, const Variable& b) {
  const double product = a.value().item() * b.value().item();
  Tensor y = Tensor::full(Shape{}, product);
  return record("times", y, {a, b},
                [a = a.value(), b = b.value()](const Tensor& dy, GradientSink& out) {
                  if (out.wants(0)) out.add(0, Tensor::full(Shape{}, dy.item() * b.item()));
                  if (out.wants(1)) out.add(1, Tensor::full(Shape{}, dy.item() * a.item()));
                });
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
