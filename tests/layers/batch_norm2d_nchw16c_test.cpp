// SPDX-License-Identifier: Apache-2.0
// batch_norm2d_nchw16c_test.cpp: compares batch norm on NCHW16c images with its definition in
// double, and with the kernels for NCHW.
#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "layers/batch_norm2d/batch_norm2d.h"
#include "layers/batch_norm2d/batch_norm2d_fused.h"
#include "tests/layers/nchw16c_images.h"

namespace convscope {
namespace {

using namespace testing;

constexpr double kUnit = 0x1p-24;
constexpr double kEps = 1e-5;
// Roundings of a number in its sum (batch_norm2d_nchw16c_simd.cpp), plus 4 more.
constexpr double kRoundings = 68;

// Kernels divide only the channel blocks among threads, or also cut the pixels of a block into
// slices. The shapes have one or many channel blocks, so that both cases occur.
std::vector<Shape> shapes() {
  return {{3, 1, 5, 7},    {2, 16, 1, 1},   {5, 17, 1, 1},    {2, 40, 7, 9},  {1, 17, 40, 40},
          {1, 40, 33, 32}, {7, 16, 13, 13}, {1, 257, 33, 32}, {2, 16, 50, 43}};
}
// Large shapes are checked only once.
bool skips(const Shape& shape, Numbers kind, int variant) {
  return shape.numel() > 50000 && (kind != Numbers::normal || variant != 3);
}
// Batch norm has no meaningful result for the kind `ties`, whose images contain NaN and only a few
// different numbers. So `ties` is left out.
constexpr Numbers kKinds[] = {Numbers::normal, Numbers::offset, Numbers::heavy_tails};

// Calls body(i) for all numbers of channel c of images.
template <class Body>
void each(const Shape& images, std::int64_t c, const Body& body) {
  const std::int64_t plane = images[2] * images[3];
  for (std::int64_t n = 0; n < images[0]; ++n) {
    for (std::int64_t i = 0; i < plane; ++i) body((n * images[1] + c) * plane + i);
  }
}
double count_of(const Shape& images) {
  return static_cast<double>(images[0] * images[2] * images[3]);
}

struct Channel {
  double mean = 0, variance = 0, inverse = 0;
  double spread = 0;  // the mean of |x - first|
};
Channel statistics_of(const Tensor& x, std::int64_t c) {
  const Shape& shape = x.shape();
  const double count = count_of(shape);
  const float* const from = x.data<float>();
  const double first = static_cast<double>(from[c * shape[2] * shape[3]]);
  Channel out;
  each(shape, c, [&](std::int64_t i) {
    out.mean += (static_cast<double>(from[i]) - first) / count;
    out.spread += std::abs(static_cast<double>(from[i]) - first) / count;
  });
  out.mean += first;
  each(shape, c, [&](std::int64_t i) {
    const double away = static_cast<double>(from[i]) - out.mean;
    out.variance += away * away / count;
  });
  out.inverse = 1 / std::sqrt(out.variance + kEps);
  return out;
}

// The expected result, and how far each number may be off.
struct Expected {
  explicit Expected(const Shape& shape)
      : value(Tensor::empty(shape, DType::f64)), bound(Tensor::empty(shape, DType::f64)) {}
  void set(std::int64_t i, double v, double b) const {
    value.data<double>()[i] = v;
    bound.data<double>()[i] = b;
  }
  void check(const Tensor& got) const {
    ASSERT_EQ(got.shape(), value.shape());
    const float* const g = got.data<float>();
    const double *const v = value.data<double>(), *const b = bound.data<double>();
    for (std::int64_t i = 0; i < got.numel(); ++i) {
      if (std::abs(static_cast<double>(g[i]) - v[i]) <= b[i]) continue;
      FAIL() << "at " << i << ": " << g[i] << " for " << v[i] << ", bound " << b[i];
    }
  }
  Tensor value, bound;
};

struct Trained {
  Tensor y, mean, variance, inverse;
};
Trained train(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& residual,
              bool relu) {
  const Shape channels{weight.numel()};
  Trained out{dirty_nchw16c(x.shape()), dirty(channels, DType::f64), dirty(channels, DType::f64),
              dirty(channels, DType::f64)};
  batch_norm_train_kernel.get(kCpu)({.x = nchw16c(x),
                                     .weight = weight,
                                     .bias = bias,
                                     .eps = kEps,
                                     .residual = residual.defined() ? nchw16c(residual) : Tensor(),
                                     .relu = relu,
                                     .y = out.y,
                                     .mean = out.mean,
                                     .variance = out.variance,
                                     .inverse_deviation = out.inverse});
  return out;
}

Expected expected_y(const std::vector<Channel>& channels, const Tensor& x, const Tensor& weight,
                    const Tensor& bias, const Tensor& residual, bool relu) {
  const Expected out(x.shape());
  for (std::int64_t c = 0; c < weight.numel(); ++c) {
    const Channel& right = channels[static_cast<std::size_t>(c)];
    const double factor = right.inverse * weight.at(c), shift = bias.at(c);
    const double mean_error = kRoundings * kUnit * right.spread;
    const float* const from = x.data<float>();
    each(x.shape(), c, [&](std::int64_t i) {
      const double v = static_cast<double>(from[i]);
      const double beside = residual.defined() ? residual.at(i) : 0;
      const double away = (v - right.mean) * factor, sum = away + shift + beside;
      const double rounded = std::abs(shift) + std::abs(beside) + 2 * std::abs(away);
      out.set(i, relu && sum <= 0 ? 0 : sum,
              4 * kUnit * rounded + std::abs(factor) * mean_error +
                  kRoundings * kUnit * std::abs(away));
    });
  }
  return out;
}

TEST(Nchw16cBatchNorm, TrainingMatchesTheDefinition) {
  for (const Shape& shape : shapes()) {
    for (const Numbers kind : kKinds) {
      const Tensor x = images_of(kind, shape), beside = images_of(Numbers::normal, shape, 5);
      const Tensor weight = uniform({shape[1]}, 0.5f, 2.0f, DType::f32, 2);
      const Tensor bias = normal({shape[1]}, DType::f32, 3);
      if (skips(shape, kind, 3)) continue;
      std::vector<Channel> right;
      for (std::int64_t c = 0; c < shape[1]; ++c) right.push_back(statistics_of(x, c));
      for (int variant = 0; variant < 4; ++variant) {
        if (skips(shape, kind, variant)) continue;
        SCOPED_TRACE(cat(shape, " numbers ", static_cast<int>(kind), " variant ", variant));
        const bool relu = variant >= 2;
        const Tensor residual = variant % 2 == 1 ? beside : Tensor();
        const Expected want = expected_y(right, x, weight, bias, residual, relu);
        Tensor one;  // with one thread
        on_every_isa([&] {
          const Trained got = train(x, weight, bias, residual, relu);
          if (num_threads() == 1) one = got.y;
          ASSERT_TRUE(same_bits(got.y, one));
          if (num_threads() > 1) return;
          want.check(plain(got.y, shape));
          EXPECT_TRUE(has_clean_lanes(got.y, shape, kNchw16c));
          for (std::int64_t c = 0; c < shape[1]; ++c) {
            const Channel& channel = right[static_cast<std::size_t>(c)];
            constexpr double kOff = kRoundings * kUnit;
            ASSERT_NEAR(got.mean.at(c), channel.mean, kOff * channel.spread) << c;
            ASSERT_NEAR(got.variance.at(c), channel.variance, kOff * channel.variance) << c;
            ASSERT_NEAR(got.inverse.at(c), channel.inverse, kOff * channel.inverse) << c;
          }
        });
      }
    }
  }
}

TEST(Nchw16cBatchNorm, TheResultMayTakeTheMemoryOfTheResidual) {
  const Shape shape{2, 17, 5, 7};
  const Tensor x = images_of(Numbers::normal, shape),
               residual = images_of(Numbers::normal, shape, 5);
  const Tensor weight = Tensor::full({17}, 1.5), bias = Tensor::full({17}, 0.25);
  on_every_isa([&] {
    const Tensor both = nchw16c(residual), statistic = dirty({17}, DType::f64);
    batch_norm_train_kernel.get(kCpu)({.x = nchw16c(x),
                                       .weight = weight,
                                       .bias = bias,
                                       .eps = kEps,
                                       .residual = both,
                                       .relu = true,
                                       .y = both,
                                       .mean = statistic,
                                       .variance = statistic,
                                       .inverse_deviation = dirty({17}, DType::f64)});
    EXPECT_TRUE(same_bits(both, train(x, weight, bias, residual, true).y));
  });
}

// A NaN or an infinity affects only its channel, and a ReLU keeps NaN.
TEST(Nchw16cBatchNorm, NaNStaysInItsChannel) {
  const Shape shape{2, 20, 6, 5};
  const Tensor x = images_of(Numbers::normal, shape);
  x.data<float>()[3 * 30 + 4] = std::numeric_limits<float>::quiet_NaN();
  x.data<float>()[18 * 30] = std::numeric_limits<float>::infinity();
  on_every_isa([&] {
    const Tensor y =
        plain(train(x, Tensor::full({20}, 1.0), Tensor::zeros({20}), Tensor(), true).y, shape);
    for (std::int64_t c = 0; c < 20; ++c) {
      each(shape, c, [&](std::int64_t i) {
        ASSERT_EQ(std::isnan(y.at(i)), c == 3 || c == 18) << c << " " << i;
      });
    }
  });
}

// The expected gradients of each channel, and the bounds on the rounding errors of the channel's
// sums.
struct Gradients {
  Gradients(const Tensor& x, const Tensor& dy, const Tensor& y, const Tensor& weight)
      : g(Tensor::empty(x.shape())), dx(x.shape()) {
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      g.data<float>()[i] = !y.defined() || y.data<float>()[i] > 0 ? dy.data<float>()[i] : 0;
    }
    for (std::int64_t c = 0; c < weight.numel(); ++c) add_channel(x, weight.at(c), c);
  }

  void add_channel(const Tensor& x, double weight, std::int64_t c) {
    const Channel at = statistics_of(x, c);
    const double count = count_of(x.shape());
    const float *const values = x.data<float>(), *const gradients = g.data<float>();
    const auto gradient = [&](std::int64_t i) { return static_cast<double>(gradients[i]); };
    const auto away = [&](std::int64_t i) { return static_cast<double>(values[i]) - at.mean; };
    double s = 0, sx = 0, size = 0, size_x = 0;
    each(x.shape(), c, [&](std::int64_t i) {
      s += gradient(i);
      sx += gradient(i) * away(i);
      size += std::abs(gradient(i));
      size_x += std::abs(gradient(i) * away(i));
    });
    // The kernel first rounds the mean to f32. It uses the rounded mean in dx and in the sum of dy
    // (x - mean).
    const double off = kUnit * std::abs(at.mean), s_off = kRoundings * kUnit * size;
    const double sx_off = kRoundings * kUnit * (size_x + off * size) + off * s_off;
    const double i2 = at.inverse * at.inverse, factor = weight * at.inverse;
    each(x.shape(), c, [&](std::int64_t i) {
      const double x_term = i2 * away(i) * sx / count, mean_term = s / count;
      const double rounded = std::abs(gradient(i)) + std::abs(x_term) + std::abs(mean_term);
      dx.set(i, factor * (gradient(i) - x_term - mean_term),
             factor * (4 * kUnit * rounded + i2 * std::abs(away(i)) * sx_off / count +
                       i2 * off * std::abs(sx) / count + s_off / count));
    });
    mean.push_back(at.mean);
    inverse.push_back(at.inverse);
    sum.push_back(s);
    sum_x.push_back(sx);
    sum_off.push_back(s_off);
    sum_x_off.push_back(sx_off);
  }

  Tensor g;
  Expected dx;
  std::vector<double> mean, inverse, sum, sum_x, sum_off, sum_x_off;
};

constexpr float kBefore = 0.75f;  // previous gradient of the residual

TEST(Nchw16cBatchNorm, GradientsMatchTheDefinition) {
  for (const Shape& shape : shapes()) {
    const Shape channels{shape[1]};
    for (const Numbers kind : kKinds) {
      const Tensor x = images_of(kind, shape), dy = images_of(Numbers::normal, shape, 4);
      const Tensor y = images_of(Numbers::ties, shape, 6);  // zeros and NaN: no gradient there
      const Tensor weight = uniform(channels, 0.5f, 2.0f, DType::f32, 2);
      if (skips(shape, kind, 3)) continue;
      const Gradients all(x, dy, Tensor(), weight), behind_relu(x, dy, y, weight);
      for (int variant = 0; variant < 6; ++variant) {
        if (skips(shape, kind, variant)) continue;
        SCOPED_TRACE(cat(shape, " numbers ", static_cast<int>(kind), " variant ", variant));
        const bool masked = variant % 2 == 1, adds = variant >= 4, in_place = variant >= 2;
        const Gradients& want = masked ? behind_relu : all;
        const Tensor want_beside = want.g.clone();
        for (std::int64_t i = 0; adds && i < x.numel(); ++i) {
          want_beside.data<float>()[i] += kBefore;
        }
        Tensor one;
        on_every_isa([&] {
          const Tensor g = nchw16c(dy), dx = in_place ? g : dirty_nchw16c(shape);
          const Tensor beside = adds ? nchw16c(Tensor::full(shape, static_cast<double>(kBefore)))
                                     : dirty_nchw16c(shape);
          const Tensor sum = dirty(channels, DType::f64), sum_x = dirty(channels, DType::f64);
          batch_norm_train_gradient_kernel.get(kCpu)(
              {.dy = g,
               .x = nchw16c(x),
               .weight = weight,
               .y = masked ? nchw16c(y) : Tensor(),
               .mean = Tensor::from(std::span<const double>(want.mean), channels),
               .inverse_deviation = Tensor::from(std::span<const double>(want.inverse), channels),
               .residual_gradient = beside,
               .residual_accumulate = adds,
               .dx = dx,
               .sum_dy = sum,
               .sum_dy_x = sum_x});
          if (num_threads() == 1) one = dx;
          ASSERT_TRUE(same_bits(dx, one));
          EXPECT_TRUE(has_clean_lanes(beside, shape, kNchw16c));
          EXPECT_TRUE(same_bits(plain(beside, shape), want_beside));
          if (num_threads() > 1) return;
          want.dx.check(plain(dx, shape));
          EXPECT_TRUE(in_place || same_bits(plain(g, shape), want.g));
          EXPECT_TRUE(has_clean_lanes(dx, shape, kNchw16c));
          for (std::size_t c = 0; c < want.sum.size(); ++c) {
            const auto at = static_cast<std::int64_t>(c);
            ASSERT_NEAR(sum.at(at), want.sum[c], want.sum_off[c]) << c;
            ASSERT_NEAR(sum_x.at(at), want.sum_x[c], want.sum_x_off[c]) << c;
          }
        });
      }
    }
  }
}

TEST(Nchw16cBatchNorm, GivesTheSumsAloneWhereNobodyAsksForDx) {
  const Shape shape{2, 17, 5, 7};
  const Tensor x = images_of(Numbers::normal, shape), dy = images_of(Numbers::normal, shape, 4);
  const Tensor ones = Tensor::full({17}, 1.0, DType::f64);
  const Tensor sum = dirty({17}, DType::f64), sum_x = dirty({17}, DType::f64);
  batch_norm_train_gradient_kernel.get(kCpu)({.dy = nchw16c(dy),
                                              .x = nchw16c(x),
                                              .weight = Tensor::full({17}, 1.0),
                                              .y = {},
                                              .mean = ones,
                                              .inverse_deviation = ones,
                                              .residual_gradient = {},
                                              .dx = {},
                                              .sum_dy = sum,
                                              .sum_dy_x = sum_x});
  for (std::int64_t c = 0; c < 17; ++c) {
    double s = 0;
    each(shape, c, [&](std::int64_t i) { s += dy.at(i); });
    EXPECT_NEAR(sum.at(c), s, kRoundings * kUnit * 70 * 4);
  }
}

TEST(Nchw16cBatchNorm, EvalModeHasTheBitsOfPlanes) {
  std::vector<Shape> all = shapes();
  all.push_back({0, 17, 4, 4});
  for (const Shape& shape : all) {
    for (const Numbers kind : kAllNumbers) {
      SCOPED_TRACE(cat(shape, " numbers ", static_cast<int>(kind)));
      const Tensor x = images_of(kind, shape);
      const Tensor factor = uniform({shape[1]}, 0.5f, 2.0f), shift = normal({shape[1]});
      const Tensor mean = normal({shape[1]});
      on_every_isa([&] {
        const Tensor y = dirty(shape), yb = dirty_nchw16c(shape);
        if (y.numel() > 0) batch_norm_apply_kernel.get(kCpu)(x, mean, factor, shift, y);
        batch_norm_apply_kernel.get(kCpu)(nchw16c(x), mean, factor, shift, yb);
        EXPECT_TRUE(same_bits(plain(yb, shape), y));
        EXPECT_TRUE(has_clean_lanes(yb, shape, kNchw16c));
      });
    }
  }
}

TEST(Nchw16cBatchNorm, AnEmptyBatchHasMean0) {
  const Trained got = train(Tensor::empty({0, 17, 3, 3}), Tensor::full({17}, 1.0),
                            Tensor::zeros({17}), Tensor(), false);
  for (std::int64_t c = 0; c < 17; ++c) {
    EXPECT_EQ(got.mean.at(c), 0);
    EXPECT_EQ(got.variance.at(c), 0);
  }
}

}  // namespace
}  // namespace convscope
