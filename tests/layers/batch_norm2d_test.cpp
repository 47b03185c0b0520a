// SPDX-License-Identifier: Apache-2.0
// batch_norm2d_test.cpp: compares batch norm, in training and in eval mode, with its definition.
#include "layers/batch_norm2d/batch_norm2d.h"

#include <gtest/gtest.h>

#include <cmath>

#include "framework/autograd/gradcheck.h"
#include "framework/ops/bounded_relu/bounded_relu.h"
#include "framework/ops/elementwise.h"
#include "layers/batch_norm2d/batch_norm2d_factors.h"
#include "layers/batch_norm2d/batch_norm2d_fused.h"
#include "layers/sparse_rows/row_norm.h"
#include "tests/layers/layer_cases.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using testing::error_of;
using testing::leaf;
using testing::near;
using testing::normal;
using testing::on_every_machine;
using testing::uniform;

constexpr double kEps = 0x1p-24;

TEST(BatchNorm2d, GradientsMatchDifferencesWhileTraining) {
  const auto f = [](const std::vector<Variable>& v) {
    return batch_norm2d(v[0], v[1], v[2], 1e-3);
  };
  // The tolerance is larger than usual: the second derivatives are large, which makes finite
  // differences less exact.
  const GradcheckResult result =
      gradcheck(f, {leaf(normal({3, 2, 2, 3})), leaf(uniform({2}, 0.5f, 2.0f)), leaf(normal({2}))},
                {.tolerance = 1e-6});
  EXPECT_TRUE(result.ok) << result.str();
}

TEST(BatchNorm2d, GradientsMatchDifferencesInEvalMode) {
  const Tensor mean = normal({2}), variance = uniform({2}, 0.5f, 2.0f);
  const auto f = [&](const std::vector<Variable>& v) {
    return batch_norm2d(v[0], v[1], v[2], mean, variance, 1e-3);
  };
  const GradcheckResult result =
      gradcheck(f, {leaf(normal({3, 2, 2, 3})), leaf(uniform({2}, 0.5f, 2.0f)), leaf(normal({2}))});
  EXPECT_TRUE(result.ok) << result.str();
}

TEST(BatchNorm2d, FloatMatchesDoubleInEveryDirection) {
  const Tensor x = normal({16, 6, 11, 13}, DType::f32, 1);
  const Tensor weight = uniform({6}, 0.5f, 2.0f, DType::f32, 2);
  const Tensor bias = normal({6}, DType::f32, 3);
  const Tensor dy = normal(x.shape(), DType::f32, 4);
  const auto run = [&](DType dtype, int which) {
    const Variable vx = leaf(x.to(dtype)), vw = leaf(weight.to(dtype)), vb = leaf(bias.to(dtype));
    const Variable y = batch_norm2d(vx, vw, vb, 1e-5);
    if (which == 0) return y.value();
    y.backward(dy.to(dtype));
    return which == 1 ? vx.grad() : which == 2 ? vw.grad() : vb.grad();
  };
  for (int which = 0; which < 4; ++which) {
    const Tensor want = run(DType::f64, which);
    // y and dx have values below 16 and pass through a few roundings. dw and db are sums of 16 x 11
    // x 13 terms of magnitude 1, and the sum rounds each term at most 14 times
    // (batch_norm2d_simd.cpp).
    const double bound = which >= 2 ? 14 * kEps * 16 * 11 * 13 : 16 * 4 * kEps;
    on_every_machine(
        [&] { return run(DType::f32, which); },
        [&](const Tensor& got) { EXPECT_TRUE(near(got, want, bound, 4 * kEps)) << which; });
  }
}

TEST(BatchNorm2d, AMeanFarFromZeroDoesNotSpoilTheVariance) {
  Tensor x = normal({8, 1, 16, 16}, DType::f32);
  for (std::int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] += 1000;
  BatchNormStatistics statistics;
  batch_norm2d(Variable(x), Variable(Tensor::full({1}, 1.0)), Variable(Tensor::zeros({1})), 1e-5,
               &statistics);
  double mean = 0, variance = 0;
  for (std::int64_t i = 0; i < x.numel(); ++i) mean += x.at(i) / static_cast<double>(x.numel());
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    variance += (x.at(i) - mean) * (x.at(i) - mean) / static_cast<double>(x.numel());
  }
  // The values are near 1000. If the kernel did not subtract a value near the mean first, a sum of
  // 512 values would be off by 1e-2.
  EXPECT_NEAR(statistics.mean.at(0), mean, 14 * kEps);
  EXPECT_NEAR(statistics.variance.at(0), variance, 14 * kEps);
}

// The kernel must compute (x - mean) factor + bias. If it computed x factor and mean factor
// separately, numbers of 4e7 and more would leave their rounding errors in y.
TEST(BatchNorm2d, AConstantChannelBecomesItsBias) {
  const Tensor weight = Tensor::full({1}, 1.0), bias = Tensor::full({1}, 0.25);
  const testing::MachineScope scope;
  for (const double value : {123456.7, 3.33e9, -1e19}) {
    const Tensor x = Tensor::full({2, 1, 5, 7}, value), rows = Tensor::full({70, 1}, value);
    const Tensor mean = Tensor::full({1}, x.at(0)), variance = Tensor::zeros({1});
    for (int isa = 0; isa < kIsaCount; ++isa) {
      if (!supports_isa(static_cast<Isa>(isa))) continue;
      set_isa(static_cast<Isa>(isa));
      const Variable vx(x), vr(rows), w(weight), b(bias);
      for (const Tensor& y :
           {batch_norm2d(vx, w, b, 1e-5).value(),
            batch_norm2d(vx, w, b, mean, variance, 1e-5).value(), row_norm(vr, w, b, 1e-5).value(),
            row_norm(vr, w, b, mean, variance, 1e-5).value()}) {
        for (std::int64_t i = 0; i < y.numel(); ++i)
          ASSERT_EQ(y.at(i), 0.25) << value << " at " << i;
      }
    }
  }
}

// The square of x - mean overflows f32, but the mean of these squares does not overflow in double.
TEST(BatchNorm2d, LargeNumbersAreNormalised) {
  const Tensor small = normal({4, 3, 9, 7}, DType::f32);
  Tensor x = small.clone();
  for (std::int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] *= 1e19f;
  const Variable w(Tensor::full({3}, 1.0)), b(Tensor::zeros({3}));
  const Tensor want = batch_norm2d(Variable(small), w, b, 0.0).value();
  on_every_machine([&] { return batch_norm2d(Variable(x), w, b, 0.0).value(); },
                   [&](const Tensor& got) { EXPECT_TRUE(near(got, want, 64 * kEps, 64 * kEps)); });
}

TEST(BatchNorm2d, RunningStatisticsMoveWhileTrainingAndAreUsedInEvalMode) {
  LayerContext context;
  BatchNorm2d layer(1, {.momentum = 0.25}, context);
  const Variable x(Tensor::from({1, 2, 3, 6}, {2, 1, 1, 2}));  // mean 3, unbiased variance 14/3
  layer.forward(x);
  const std::vector<NamedTensor> buffers = layer.buffers();
  ASSERT_EQ(buffers[0].name, "running_mean");
  EXPECT_NEAR(buffers[0].tensor.at(0), 0.75, 1e-6);
  EXPECT_NEAR(buffers[1].tensor.at(0), 0.75 + 0.25 * 14 / 3, 1e-6);
  layer.eval();
  const Tensor y = layer.forward(x).value();
  EXPECT_NEAR(y.at(3), (6 - 0.75) / std::sqrt(0.75 + 0.25 * 14 / 3 + 1e-5), 1e-5);
  EXPECT_NEAR(buffers[0].tensor.at(0), 0.75, 1e-6) << "eval mode moved it";
}

TEST(BatchNorm2d, EmptyBatchesWorkAndChangeNothing) {
  LayerContext context;
  BatchNorm2d layer(2, {}, context);
  const Variable x = leaf(Tensor::empty({0, 2, 3, 3}));
  const Variable y = layer.forward(x);
  EXPECT_EQ(y.shape(), x.shape());
  y.backward(Tensor::empty(x.shape()));
  EXPECT_EQ(layer.parameters()[0].variable.grad().at(0), 0.0);
  EXPECT_EQ(layer.buffers()[1].tensor.at(0), 1.0);
}

// The results of the fused kernels, computed pass by pass.
struct Passes {
  Tensor y, dx, residual_gradient, sum_dy, sum_dy_x;
};
constexpr double kFusedEps = 1e-5;

Passes one_by_one(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& residual,
                  float most, const Tensor& dy) {
  const Variable vx = leaf(x), vw = leaf(weight), vb = leaf(bias);
  const Variable vr = residual.defined() ? leaf(residual) : Variable();
  Variable y = batch_norm2d(vx, vw, vb, kFusedEps);
  if (vr.defined()) y = add(y, vr);
  if (most > 0) y = std::isinf(most) ? relu(y) : bounded_relu(y, most);
  y.backward(dy);
  return {y.value(), vx.grad(), vr.defined() ? vr.grad() : Tensor(), vb.grad(), vw.grad()};
}

Passes fused(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& residual,
             float most, const Tensor& dy) {
  const Shape channels{x.dim(1)};
  const auto empty = [&] { return Tensor::empty(channels, DType::f64); };
  const Tensor mean = empty(), variance = empty(), inverse = empty();
  Passes out{
      .y = Tensor::empty(x.shape(), x.dtype()),
      .dx = Tensor::empty(x.shape(), x.dtype()),
      .residual_gradient = residual.defined() ? Tensor::empty(x.shape(), x.dtype()) : Tensor(),
      .sum_dy = empty(),
      .sum_dy_x = empty()};
  batch_norm_train_kernel.get(Device{})({.x = x,
                                         .weight = weight,
                                         .bias = bias,
                                         .eps = kFusedEps,
                                         .residual = residual,
                                         .relu = most > 0,
                                         .most = most,
                                         .y = out.y,
                                         .mean = mean,
                                         .variance = variance,
                                         .inverse_deviation = inverse});
  batch_norm_train_gradient_kernel.get(Device{})({.dy = dy.clone(),
                                                  .x = x,
                                                  .weight = weight,
                                                  .y = most > 0 ? out.y : Tensor(),
                                                  .most = most,
                                                  .mean = mean,
                                                  .inverse_deviation = inverse,
                                                  .residual_gradient = out.residual_gradient,
                                                  .dx = out.dx,
                                                  .sum_dy = out.sum_dy,
                                                  .sum_dy_x = out.sum_dy_x});
  for (std::int64_t c = 0; c < x.dim(1); ++c) {
    out.sum_dy_x.data<double>()[c] *= inverse.at(c);  // the gradient of the weight
  }
  out.sum_dy = out.sum_dy.to(x.dtype());
  out.sum_dy_x = out.sum_dy_x.to(x.dtype());
  return out;
}

TEST(BatchNorm2d, FusedPassesGiveTheBitsOfSinglePasses) {
  const testing::MachineScope scope;
  for (const Shape& shape : {Shape{3, 5, 7, 7}, Shape{2, 3, 33, 31}, Shape{4, 2, 1, 1}}) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      const Tensor x = normal(shape, dtype, 1), other = normal(shape, dtype, 5);
      const Tensor weight = uniform({shape[1]}, 0.5f, 2.0f, dtype, 2);
      const Tensor bias = normal({shape[1]}, dtype, 3), dy = normal(shape, dtype, 4);
      for (int variant = 0; variant < 6; ++variant) {
        const float most = variant < 2 ? 0 : variant < 4 ? INFINITY : 0.75f;  // 0: no relu
        const Tensor residual = variant % 2 == 1 ? other : Tensor();
        for (int isa = 0; isa < kIsaCount; ++isa) {
          if (!supports_isa(static_cast<Isa>(isa))) continue;
          set_isa(static_cast<Isa>(isa));
          const Passes want = one_by_one(x, weight, bias, residual, most, dy);
          const Passes got = fused(x, weight, bias, residual, most, dy);
          EXPECT_TRUE(testing::same_bits(got.y, want.y)) << variant << " " << isa;
          EXPECT_TRUE(testing::same_bits(got.dx, want.dx)) << variant << " " << isa;
          EXPECT_TRUE(testing::same_bits(got.sum_dy, want.sum_dy)) << variant << " " << isa;
          EXPECT_TRUE(testing::same_bits(got.sum_dy_x, want.sum_dy_x)) << variant << " " << isa;
          if (!residual.defined()) continue;
          EXPECT_TRUE(testing::same_bits(got.residual_gradient, want.residual_gradient));
        }
      }
    }
  }
}

TEST(BatchNorm2d, FusedGradientAddsToWhatTheResidualHas) {
  const Tensor x = normal({2, 3, 5, 7}, DType::f32, 1), dy = normal(x.shape(), DType::f32, 2);
  const Tensor ones = Tensor::full({3}, 1.0, DType::f64);
  const Tensor sums = Tensor::empty({3}, DType::f64), sums_x = Tensor::empty({3}, DType::f64);
  const Tensor residual_gradient = Tensor::full(x.shape(), 2.0);
  batch_norm_train_gradient_kernel.get(Device{})({.dy = dy.clone(),
                                                  .x = x,
                                                  .weight = Tensor::full({3}, 1.0),
                                                  .y = {},
                                                  .mean = ones,
                                                  .inverse_deviation = ones,
                                                  .residual_gradient = residual_gradient,
                                                  .residual_accumulate = true,
                                                  .dx = {},
                                                  .sum_dy = sums,
                                                  .sum_dy_x = sums_x});
  for (std::int64_t i = 0; i < dy.numel(); ++i) {
    EXPECT_EQ(residual_gradient.at(i), static_cast<float>(dy.at(i)) + 2.0f);
  }
}

TEST(BatchNorm2d, ErrorsSayWhatDoesNotFit) {
  LayerContext context;
  BatchNorm2d layer(2, {}, context);
  EXPECT_NE(error_of([&] {
              layer.forward(Variable(Tensor::zeros({2, 3, 4, 4})));
            }).find("expected weight and bias [3]"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              layer.forward(Variable(Tensor::zeros({1, 2, 1, 1})));
            }).find("expected more than one value for each channel"),
            std::string::npos);
  EXPECT_EQ(error_of([&] {
              layer.output_shape({2, 3, 4, 4});
            }),
            "[batch_norm2d] expected x [N,2,H,W], got [2,3,4,4]");
}

TEST(BatchNorm2d, TheUnbiasedVarianceOfOneValueIsANumber) {
  EXPECT_EQ(unbiased_by(1), 1);
  EXPECT_EQ(6 * unbiased_by(3), 9);
  EXPECT_EQ(6 * unbiased_by(2), 12);
}

}  // namespace
}  // namespace convscope
