// SPDX-License-Identifier: Apache-2.0
// bounded_relu_test.cpp: tests the ReLU with an upper bound: its values at both bounds, its
// gradient, and the GPU's sequence of operations, which also runs on the CPU.
#include "framework/ops/bounded_relu/bounded_relu.h"

#include <gtest/gtest.h>

#include <limits>

#include "framework/autograd/gradcheck.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using testing::error_of;
using testing::leaf;
using testing::near;
using testing::on_every_machine;
using testing::same_bits;
using testing::uniform;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kTiny = std::numeric_limits<float>::denorm_min();
constexpr float kBelow = 6 - 0x1p-21f, kAbove = 6 + 0x1p-21f;  // the neighbours of 6

const std::vector<float> kX = {-kInf, -7,     -kTiny, -0.0f,  0,     kTiny, 1e-20f, 0.1f, 5.5f,
                               6,     kBelow, kAbove, 12.25f, 1e30f, kInf,  3.0f,   -6};
const std::vector<float> kY = {0, 0,      0, 0, 0, kTiny, 1e-20f, 0.1f, 5.5f,
                               6, kBelow, 6, 6, 6, 6,     3.0f,   0};

Tensor column(const std::vector<float>& values, DType dtype = DType::f32) {
  Tensor out = Tensor::empty({static_cast<std::int64_t>(values.size())});
  std::copy(values.begin(), values.end(), out.data<float>());
  return out.to(dtype);
}

TEST(BoundedRelu, CutsBelowZeroAndAboveTheBoundBitByBit) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor x = column(kX, dtype);
    on_every_machine([&] { return relu6(Variable(x)).value(); },
                     [&](const Tensor& y) { EXPECT_TRUE(same_bits(y, column(kY, dtype))); });
  }
}

TEST(BoundedRelu, LeavesNaN) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor x = column(std::vector<float>(37, kNan), dtype);
    const Variable v = leaf(x);
    const Variable y = relu6(v);
    y.backward(Tensor::full(x.shape(), 2.0, dtype));
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      EXPECT_TRUE(std::isnan(y.value().at(i))) << i;
      EXPECT_EQ(v.grad().at(i), 2) << i;  // as in relu
    }
  }
}

TEST(BoundedRelu, FloatIsDoubleOnManyElements) {
  const Tensor x = uniform({3, 40001}, -10, 20, DType::f32);
  const Tensor want = bounded_relu(Variable(x.to(DType::f64)), 7.5).value();
  on_every_machine([&] { return bounded_relu(Variable(x), 7.5).value(); },
                   [&](const Tensor& y) { EXPECT_TRUE(near(y, want, 0, 0)); });
}

TEST(BoundedRelu, PassesTheGradientBetweenTheBoundsAlone) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor x = column(kX, dtype);
    on_every_machine(
        [&] {
          const Variable v = leaf(x);
          relu6(v).backward(Tensor::full(x.shape(), 3.0, dtype));
          return v.grad();
        },
        [&](const Tensor& dx) {
          for (std::int64_t i = 0; i < x.numel(); ++i) {
            EXPECT_EQ(dx.at(i), x.at(i) > 0 && x.at(i) < 6 ? 3 : 0) << x.at(i);
          }
        });
  }
}

TEST(BoundedRelu, GradientMatchesDifferences) {
  const GradcheckResult result =
      gradcheck([](const std::vector<Variable>& v) { return bounded_relu(v[0], 1.5); },
                {leaf(uniform({5, 9}, -3, 3))});
  EXPECT_TRUE(result.ok) << result.str();
}

// The version that runs on a GPU.
TEST(BoundedRelu, ComposedOfOtherKernelsHasTheSameBits) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor random = uniform({2, 5003}, -10, 20, dtype);
    for (const Tensor& x : {column(kX, dtype), random}) {
      const Tensor dy = uniform(x.shape(), -1, 1, dtype, 2);
      const Variable v = leaf(x);
      const Variable want = relu6(v);
      want.backward(dy);
      const Tensor y = Tensor::empty(x.shape(), dtype);
      bounded_relu_composed(x, 6, Tensor::empty({2, x.numel()}, dtype), y);
      EXPECT_TRUE(same_bits(y, want.value()));
      const Tensor dx = Tensor::empty(x.shape(), dtype);
      const Tensor scratch = Tensor::empty({1, x.numel()}, dtype);
      bounded_relu_gradient_composed(y, dy, 6, scratch, dx);
      EXPECT_TRUE(same_bits(dx, v.grad()));
      bounded_relu_gradient_composed(y, dy, 6, scratch, dy);  // in place
      EXPECT_TRUE(same_bits(dy, v.grad()));
    }
  }
  const Tensor nan = column({kNan, 1});
  const Tensor y = Tensor::empty({2});
  bounded_relu_composed(nan, 6, Tensor::empty({2, 2}), y);
  EXPECT_TRUE(std::isnan(y.at(0)));
  EXPECT_EQ(y.at(1), 1);
}

TEST(BoundedRelu, TakesAnEmptyTensorAndRefusesWhatItCannotDo) {
  const Variable none = leaf(Tensor::empty({0, 3}));
  const Variable y = relu6(none);
  EXPECT_EQ(y.shape(), (Shape{0, 3}));
  y.backward(Tensor::empty({0, 3}));
  EXPECT_NE(error_of([] {
              bounded_relu(Variable(Tensor::zeros({2})), 0);
            }).find("expected an upper bound above 0, got 0"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              relu6(Variable(Tensor::zeros({2}, DType::i32)));
            }).find("expected x of type f32 or f64"),
            std::string::npos);
}

}  // namespace
}  // namespace convscope
