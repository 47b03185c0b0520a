// SPDX-License-Identifier: Apache-2.0
#include "layers/batch_norm2d.h"

#include <gtest/gtest.h>

#include <cmath>

#include "framework/autograd/gradcheck.h"
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
  // Second derivatives are larger here, so the differences are a little worse.
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
    // Sums are in double; what is written is a few roundings of numbers below 16.
    on_every_machine(
        [&] { return run(DType::f32, which); },
        [&](const Tensor& got) { EXPECT_TRUE(near(got, want, 16 * 4 * kEps, 4 * kEps)) << which; });
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
  EXPECT_NEAR(statistics.mean.at(0), mean, 1e-9);
  EXPECT_NEAR(statistics.variance.at(0), variance, 1e-9);
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

}  // namespace
}  // namespace convscope
