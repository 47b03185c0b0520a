// SPDX-License-Identifier: Apache-2.0
// pool2d_test.cpp: max and mean pooling against their definitions, and their gradients.
#include "layers/pool2d/pool2d.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

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
using testing::same_bits;

constexpr double kEps = 0x1p-24;

struct Case {
  Shape x;
  Pool2dWindow window;
};

std::vector<Case> cases() {
  return {
      {{2, 3, 4, 6}, {}},
      {{2, 3, 5, 7}, {}},                   // a row and a column left over
      {{2, 3, 5, 7}, {.ceil_mode = true}},  // partial windows
      {{1, 2, 6, 5}, {.kernel_h = 3, .kernel_w = 2, .stride_h = 2, .stride_w = 1}},
      {{1, 2, 6, 6},
       {.kernel_h = 3, .kernel_w = 3, .stride_h = 1, .stride_w = 2, .pad_h = 1, .pad_w = 1}},
      {{1, 2, 7, 6}, {.kernel_h = 3, .kernel_w = 3, .pad_h = 1, .pad_w = 1, .ceil_mode = true}},
      {{1, 1, 3, 3}, {.kernel_h = 3, .kernel_w = 3, .stride_h = 5, .stride_w = 5}},
      {{1, 1, 9, 9}, {.kernel_h = 2, .kernel_w = 2, .stride_h = 4, .stride_w = 3}},
      {{1, 1, 1, 1}, {.kernel_h = 1, .kernel_w = 1, .stride_h = 1, .stride_w = 1}},
      {{1, 2, 20, 20}, {.kernel_h = 18, .kernel_w = 17, .stride_h = 1, .stride_w = 1}},  // > 256
  };
}

// Widths around those of the vectors, for the 2x2 kernels.
std::vector<Case> vector_cases() {
  std::vector<Case> out;
  for (std::int64_t w : {2, 3, 8, 14, 15, 16, 17, 18, 24, 30, 31, 32, 33, 34, 48, 65, 66}) {
    out.push_back({{3, 5, 6, w}, {}});
  }
  for (std::int64_t w : {3, 4, 5, 15, 16, 17, 18, 19, 30, 31, 32, 33, 34, 35, 36, 63, 66, 112}) {
    for (const std::int64_t stride : {1, 2}) {
      out.push_back({{2, 3, 9, w},
                     {.kernel_h = 3,
                      .kernel_w = 3,
                      .stride_h = stride,
                      .stride_w = stride,
                      .pad_h = 1,
                      .pad_w = 1}});
      out.push_back({{1, 2, 6, w}, {.kernel_h = 2, .kernel_w = 3, .stride_w = stride}});
    }
  }
  out.push_back(
      {{1, 2, 40, 40}, {.kernel_h = 16, .kernel_w = 16, .stride_h = 3, .pad_h = 8, .pad_w = 8}});
  out.push_back({{64, 6, 24, 24}, {}});
  out.push_back({{64, 16, 8, 8}, {}});
  return out;
}

// The definition: every window separately; padding has no pixels.
Tensor max_reference(const Tensor& x, const Pool2dWindow& v) {
  Tensor y = Tensor::empty(v.output_shape(x.shape(), "max_pool2d"), DType::f64);
  for (std::int64_t i = 0; i < y.numel(); ++i) {
    const std::int64_t q = i % y.dim(3), p = i / y.dim(3) % y.dim(2);
    const std::int64_t plane = i / (y.dim(3) * y.dim(2));
    double best = -std::numeric_limits<double>::infinity();
    for (std::int64_t r = 0; r < v.kernel_h; ++r) {
      for (std::int64_t s = 0; s < v.kernel_w; ++s) {
        const std::int64_t h = p * v.stride_h - v.pad_h + r, w = q * v.stride_w - v.pad_w + s;
        if (h < 0 || h >= x.dim(2) || w < 0 || w >= x.dim(3)) continue;
        best = std::max(best, x.at((plane * x.dim(2) + h) * x.dim(3) + w));
      }
    }
    y.data<double>()[i] = best;
  }
  return y;
}

TEST(Pool2d, MaxMatchesTheDefinition) {
  for (const Case& c : cases()) {
    const Tensor x = normal(c.x);
    EXPECT_TRUE(near(max_pool2d(Variable(x), c.window).value(), max_reference(x, c.window), 0, 0));
  }
}

TEST(Pool2d, GradientsMatchDifferences) {
  for (const Case& c : cases()) {
    for (bool count_include_pad : {true, false}) {
      Pool2dWindow window = c.window;
      window.count_include_pad = count_include_pad;
      const GradcheckResult avg =
          gradcheck([&](const std::vector<Variable>& v) { return avg_pool2d(v[0], window); },
                    {leaf(normal(c.x))});
      EXPECT_TRUE(avg.ok) << c.x.str() << " " << avg.str();
    }
    const GradcheckResult max =
        gradcheck([&](const std::vector<Variable>& v) { return max_pool2d(v[0], c.window); },
                  {leaf(normal(c.x))});
    EXPECT_TRUE(max.ok) << c.x.str() << " " << max.str();
  }
}

TEST(Pool2d, FloatKernelsMatchDoubleInBothDirections) {
  std::vector<Case> all = cases();
  const std::vector<Case> more = vector_cases();
  all.insert(all.end(), more.begin(), more.end());
  for (const Case& c : all) {
    const Tensor x = normal(c.x, DType::f32);
    const Tensor dy = normal(c.window.output_shape(c.x, "test"), DType::f32, 2);
    for (const auto pool : {max_pool2d, avg_pool2d}) {
      const auto run = [&](DType dtype, bool gradient) {
        const Variable v = leaf(x.to(dtype));
        const Variable y = pool(v, c.window);
        if (!gradient) return y.value();
        y.backward(dy.to(dtype));
        return v.grad();
      };
      // Forward and backward pass sum at most R S numbers of normal size. A max-pool whose windows
      // do not overlap sums nothing.
      const double bound =
          pool == max_pool2d && c.window.kernel_h <= c.window.stride_h &&
                  c.window.kernel_w <= c.window.stride_w
              ? 0
              : 8 * kEps * static_cast<double>(c.window.kernel_h * c.window.kernel_w);
      const Tensor y = run(DType::f64, false);
      const Tensor dx = run(DType::f64, true);
      on_every_machine(
          [&] { return run(DType::f32, false); },
          [&](const Tensor& got) { EXPECT_TRUE(near(got, y, bound, 0)) << c.x.str(); });
      on_every_machine(
          [&] { return run(DType::f32, true); },
          [&](const Tensor& got) { EXPECT_TRUE(near(got, dx, bound, 0)) << c.x.str(); });
    }
  }
}

TEST(Pool2d, AmongEqualsTheFirstGetsTheGradient) {
  // All elements are 0, so every window is a tie. The special kernel for 2x2 windows and the plain
  // loops must choose the same element.
  const Tensor x = Tensor::zeros({1, 1, 4, 32});
  on_every_machine(
      [&] {
        const Variable v = leaf(x);
        const Variable y = max_pool2d(v, {});
        y.backward(Tensor::full(y.shape(), 1.0));
        return v.grad();
      },
      [](const Tensor& dx) {
        for (std::int64_t i = 0; i < dx.numel(); ++i) {
          EXPECT_EQ(dx.at(i), i / 32 % 2 == 0 && i % 2 == 0 ? 1.0 : 0.0) << i;
        }
      });
}

// The input has many equal numbers. Vector code must choose the same maximum as the plain loops.
TEST(Pool2d, VectorsBreakTiesLikeThePlainLoops) {
  const Pool2dWindow window{
      .kernel_h = 3, .kernel_w = 3, .stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1};
  Tensor x = normal({2, 3, 21, 75}, DType::f32);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    x.data<float>()[i] =
        i % 97 == 0 ? std::numeric_limits<float>::quiet_NaN() : std::round(x.data<float>()[i]);
  }
  const auto gradient = [&](DType dtype) {
    const Variable v = leaf(x.to(dtype));
    const Variable y = max_pool2d(v, window);
    y.backward(Tensor::full(y.shape(), 1.0, dtype));
    return v.grad();
  };
  const Tensor want = gradient(DType::f64);
  on_every_machine([&] { return gradient(DType::f32); },
                   [&](const Tensor& dx) { EXPECT_TRUE(near(dx, want, 0, 0)); });
}

TEST(Pool2d, NaNWinsWhereverItStandsInTheWindow) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (int at = 0; at < 4; ++at) {
    Tensor x = normal({1, 1, 2, 40}, DType::f32);
    for (int q = 0; q < 20; ++q) x.data<float>()[at / 2 * 40 + 2 * q + at % 2] = nan;
    for (const Pool2dWindow& window : {Pool2dWindow{}, Pool2dWindow{.stride_h = 1}}) {
      on_every_machine(
          [&] {
            const Variable v = leaf(x);
            const Variable y = max_pool2d(v, window);
            for (int q = 0; q < 20; ++q) EXPECT_TRUE(std::isnan(y.value().at(q))) << at;
            y.backward(Tensor::full(y.shape(), 1.0));
            return v.grad();
          },
          [&](const Tensor& dx) {
            for (int q = 0; q < 20; ++q) EXPECT_EQ(dx.at(at / 2 * 40 + 2 * q + at % 2), 1.0) << at;
          });
    }
  }
}

TEST(Pool2d, AvgDividesByPixelsOrByTheWholeWindow) {
  const Variable x(Tensor::full({1, 1, 2, 2}, 1.0));
  Pool2dWindow window{
      .kernel_h = 2, .kernel_w = 2, .stride_h = 1, .stride_w = 1, .pad_h = 1, .pad_w = 1};
  EXPECT_EQ(avg_pool2d(x, window).value().at(0), 0.25);
  EXPECT_EQ(avg_pool2d(x, window).value().at(1), 0.5);
  window.count_include_pad = false;
  EXPECT_EQ(avg_pool2d(x, window).value().at(0), 1.0);
}

TEST(Pool2d, OutputSizesFollowTheFormula) {
  const auto size = [](std::int64_t in, std::int64_t k, std::int64_t s, std::int64_t p, bool ceil) {
    return Pool2dWindow{.kernel_h = k,
                        .kernel_w = k,
                        .stride_h = s,
                        .stride_w = s,
                        .pad_h = p,
                        .pad_w = p,
                        .ceil_mode = ceil}
        .output_shape({1, 1, in, in}, "test")[2];
  };
  EXPECT_EQ(size(28, 2, 2, 0, false), 14);
  EXPECT_EQ(size(5, 2, 2, 0, false), 2);
  EXPECT_EQ(size(5, 2, 2, 0, true), 3);
  EXPECT_EQ(size(7, 3, 2, 1, false), 4);
  EXPECT_EQ(size(3, 2, 2, 1, true), 2);  // 3 by rounding up, but the third begins after the image
}

// The divisor is that of PyTorch: a window counts padding pixels, but not the pixels that ceil_mode
// adds after the padding.
TEST(AvgPool2d, WindowsThatReachBeyondThePaddingAreDividedByWhatIsThere) {
  const Pool2dWindow window{.kernel_h = 3,
                            .kernel_w = 3,
                            .stride_h = 2,
                            .stride_w = 2,
                            .pad_h = 1,
                            .pad_w = 1,
                            .ceil_mode = true,
                            .count_include_pad = true};
  const Tensor y = avg_pool2d(Variable(Tensor::full({1, 1, 4, 4}, 1.0)), window).value();
  ASSERT_EQ(y.shape(), (Shape{1, 1, 3, 3}));
  EXPECT_FLOAT_EQ(static_cast<float>(y.at(0)), 4.0f / 9);  // 2 x 2 ones, 3 x 3 with the padding
  EXPECT_FLOAT_EQ(static_cast<float>(y.at(8)), 1.0f / 4);  // 1 one; rows 3 and 4 of -1 .. 4
}

TEST(AdaptiveAvgPool2d, GradientsMatchDifferencesAndFloatMatchesDouble) {
  for (const auto& [p, q] : {std::pair{1, 1}, {2, 3}, {5, 4}, {7, 9}}) {
    const auto f = [&](const std::vector<Variable>& v) { return adaptive_avg_pool2d(v[0], p, q); };
    const GradcheckResult result = gradcheck(f, {leaf(normal({2, 2, 5, 7}))});
    EXPECT_TRUE(result.ok) << result.str();
    const Tensor x = normal({70, 11, 5, 7}, DType::f32);
    const Tensor want = adaptive_avg_pool2d(Variable(x.to(DType::f64)), p, q).value();
    on_every_machine([&] { return adaptive_avg_pool2d(Variable(x), p, q).value(); },
                     [&](const Tensor& y) { EXPECT_TRUE(near(y, want, 40 * 4 * kEps, 0)); });
  }
  const Tensor x = normal({1, 2, 3, 4}, DType::f64);
  EXPECT_TRUE(near(adaptive_avg_pool2d(Variable(x), 3, 4).value(), x, 0, 0));
}

TEST(Pool2d, EmptyBatchesWork) {
  for (const auto pool : {max_pool2d, avg_pool2d}) {
    const Variable x = leaf(Tensor::empty({0, 2, 4, 4}));
    const Variable y = pool(x, {});
    EXPECT_EQ(y.shape(), (Shape{0, 2, 2, 2}));
    y.backward(Tensor::empty(y.shape()));
    EXPECT_EQ(x.grad().shape(), x.shape());
  }
}

TEST(Pool2d, ErrorsSayWhatDoesNotFit) {
  const Variable x(Tensor::zeros({1, 1, 3, 8}));
  EXPECT_EQ(error_of([&] { max_pool2d(x, {.kernel_h = 4}); }),
            "[max_pool2d] expected an image of at least 4 pixels along H because the kernel has 4 "
            "and the padding 0, got 3");
  EXPECT_NE(error_of([&] { avg_pool2d(x, {.pad_h = 2}); }).find("0 to kernel / 2"),
            std::string::npos);
  EXPECT_NE(error_of([&] { avg_pool2d(x, {.stride_h = 0}); }).find("a stride of 1"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              max_pool2d(Variable(Tensor::zeros({3, 8})), {});
            }).find("[N,C,H,W]"),
            std::string::npos);
}

TEST(Pool2d, LayersTakeOneNumberOrTwoAndStrideFollowsTheKernel) {
  using testing::build_layer;
  using testing::options;
  const Shape x{2, 3, 12, 12};
  EXPECT_EQ(
      build_layer("max_pool2d", options({{"kernel_size", std::int64_t{3}}}), x)->output_shape(x),
      (Shape{2, 3, 4, 4}));
  EXPECT_EQ(build_layer("avg_pool2d",
                        options({{"kernel_size", std::vector<std::int64_t>{2, 3}},
                                 {"stride", std::int64_t{1}}}),
                        x)
                ->output_shape(x),
            (Shape{2, 3, 11, 10}));
  EXPECT_EQ(build_layer("adaptive_avg_pool2d",
                        options({{"output_size", std::vector<std::int64_t>{5, 2}}}), x)
                ->output_shape(x),
            (Shape{2, 3, 5, 2}));
}

}  // namespace
}  // namespace convscope
