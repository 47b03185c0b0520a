// SPDX-License-Identifier: Apache-2.0
// half_images_cuda_test.cpp: compares GPU kernels that read and write NHWC images in fp16, bf16 and
// f32 with formulas that are evaluated in double for the same inputs. The kernels convert from and
// to NCHW, or compute batch norm, pooling, activations, residual sums or gradients of biases.
#include <functional>

#include "experiments/check/matrix/guarded_block.h"
#include "framework/ops/accumulate.h"
#include "framework/ops/elementwise.h"
#include "framework/precision.h"
#include "layers/batch_norm2d/batch_norm2d_half.h"
#include "layers/conv2d/bias_gradient.h"
#include "layers/dispatch/activation_layout.h"
#include "layers/dispatch/layout/half_copies.h"
#include "layers/pool2d/pool2d.h"
#include "tests/support/cuda.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using testing::cuda;
using testing::near;
using testing::normal;
using HalfImagesOnCuda = testing::CudaTest;

constexpr ActivationLayout kLast = ActivationLayout::nhwc;
constexpr DType kImageTypes[] = {DType::bf16, DType::f16, DType::f32};  // types of images
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// The shapes have channels that fill their lanes or leave some unused, fewer or more channels than
// a block handles, one pixel, and more pixels than a thread handles.
const Shape kShapes[] = {{3, 5, 4, 6}, {2, 24, 3, 5}, {1, 3, 1, 1}, {2, 72, 7, 3}, {9, 8, 31, 17}};

// Returns the largest relative error of a stored number.
double unit(DType half) {
  return half == DType::bf16 ? 0x1p-8 : half == DType::f16 ? 0x1p-11 : 0x1p-24;
}
constexpr double kTiny = 0x1p-25;  // half a step of f16 around 0

Tensor rounded(const Tensor& plain, DType half) { return plain.to(half).to(DType::f32); }
Tensor on_device(const Tensor& plain, DType half) {
  return stored_images(plain.to(half), kLast).to(cuda());
}
Tensor poisoned(const Shape& images, DType half) {
  return Tensor::full(stored_shape(images, kLast), kNaN, half, cuda());
}
// Returns the images as f32 [N,C,H,W], and checks that lanes after the last channel are 0.
Tensor from_device(const Tensor& stored, const Shape& images) {
  const Tensor host = stored.to(Device{});
  EXPECT_TRUE(has_clean_lanes(host, images, kLast)) << host.str();
  return plain_images(host, images, kLast).to(DType::f32);
}
Tensor random(const Shape& shape, DType half, std::uint64_t seed, double offset = 0) {
  Tensor out = normal(shape, DType::f32, seed);
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    out.data<float>()[i] += static_cast<float>(offset);
  }
  return rounded(out, half);
}
double at(const Tensor& t, std::int64_t i) { return static_cast<double>(t.data<float>()[i]); }

TEST_F(HalfImagesOnCuda, CopiesRoundOnceAndAddInF32) {
  for (const DType half : kImageTypes) {
    for (const Shape& shape : kShapes) {
      const Tensor x = normal(shape, DType::f32, 3);
      const Tensor stored = poisoned(shape, half);
      const Tensor on = x.to(cuda());
      HalfCopy copy{.images = shape,
                    .half = half,
                    .to_nhwc = true,
                    .from = on.raw_data(),
                    .to = stored.raw_data()};
      half_copy_kernel.get(cuda())(copy);
      EXPECT_TRUE(testing::same_bits(from_device(stored, shape), rounded(x, half)));
      copy.accumulate = true;
      half_copy_kernel.get(cuda())(copy);
      Tensor twice = rounded(x, half);
      for (std::int64_t i = 0; i < x.numel(); ++i) twice.data<float>()[i] += x.data<float>()[i];
      EXPECT_TRUE(testing::same_bits(from_device(stored, shape), rounded(twice, half)));

      const Tensor back = Tensor::full(shape, kNaN, DType::f32, cuda());
      copy = {.images = shape, .half = half, .from = stored.raw_data(), .to = back.raw_data()};
      half_copy_kernel.get(cuda())(copy);
      const Tensor want = rounded(twice, half);
      EXPECT_TRUE(testing::same_bits(back.to(Device{}), want));
      copy.accumulate = true;
      half_copy_kernel.get(cuda())(copy);
      const Tensor sum = back.to(Device{});
      for (std::int64_t i = 0; i < x.numel(); ++i) EXPECT_EQ(at(sum, i), 2 * at(want, i));
    }
  }
}

// ---- batch norm --------------------------------------------------------------------------------

struct NormCase {
  DType half;
  Shape shape;
  bool residual, relu;
  double most = std::numeric_limits<double>::infinity();
  double offset = 0;

  std::string text() const {
    return cat(name_of(half), " ", shape, residual ? " residual" : "", relu ? " relu" : "",
               " most ", most, " offset ", offset);
  }
};

void for_norm_cases(const std::function<void(const NormCase&)>& body) {
  for (const DType half : kImageTypes) {
    for (const Shape& shape : kShapes) {
      if (shape[0] * shape[2] * shape[3] == 1) continue;  // no variance
      for (const bool residual : {false, true}) {
        for (const bool relu : {false, true}) body({half, shape, residual, relu});
      }
    }
    body({half, {5, 16, 9, 8}, true, true, 0.5});
    body({half, {5, 16, 9, 8}, false, true, 0.5, 40});
  }
}

struct Norm {
  explicit Norm(const NormCase& z)
      : x(random(z.shape, z.half, 1, z.offset)),
        beside(random(z.shape, z.half, 2)),
        weight(normal({z.shape[1]}, DType::f32, 4)),
        bias(normal({z.shape[1]}, DType::f32, 5)),
        y(poisoned(z.shape, z.half)),
        mean(Tensor::empty({z.shape[1]}, DType::f64, cuda())),
        inverse(Tensor::empty({z.shape[1]}, DType::f64, cuda())),
        factors(Tensor::empty({3, y.dim(4)}, DType::f32, cuda())),
        running_mean(Tensor::full({z.shape[1]}, 0.5, DType::f32, cuda())),
        running_variance(Tensor::full({z.shape[1]}, 2, DType::f32, cuda())) {
    batch_norm_half_kernel.get(cuda())(
        {.x = on_device(x, z.half),
         .weight = weight.to(cuda()),
         .bias = bias.to(cuda()),
         .eps = 1e-5,
         .momentum = 0.1,
         .residual = z.residual ? on_device(beside, z.half) : Tensor(),
         .relu = z.relu,
         .most = static_cast<float>(z.most),
         .y = y,
         .mean = mean,
         .inverse_deviation = inverse,
         .factors = factors,
         .running_mean = running_mean,
         .running_variance = running_variance});
  }
  Tensor x, beside, weight, bias;
  Tensor y, mean, inverse, factors, running_mean, running_variance;
};

// Calls body(element) for all elements of channel c.
template <class Body>
void for_channel(const Shape& s, std::int64_t c, const Body& body) {
  const std::int64_t plane = s[2] * s[3];
  for (std::int64_t n = 0; n < s[0]; ++n) {
    for (std::int64_t i = 0; i < plane; ++i) body((n * s[1] + c) * plane + i);
  }
}

struct Channel {
  double mean = 0, variance = 0, inverse = 0, count = 0;
  Channel(const Tensor& x, std::int64_t c) {
    for_channel(x.shape(), c, [&](std::int64_t i) {
      mean += at(x, i);
      ++count;
    });
    mean /= count;
    for_channel(x.shape(), c, [&](std::int64_t i) { variance += std::pow(at(x, i) - mean, 2); });
    variance /= count;
    inverse = 1 / std::sqrt(variance + 1e-5);
  }
};

// In f32 the allowed error is 2^-20 times the sum of the magnitudes of the terms. In half precision
// it may also be one unit of the result.
TEST_F(HalfImagesOnCuda, BatchNormNormalisesWithTheStatisticsOfTheBatch) {
  for_norm_cases([](const NormCase& z) {
    const Norm norm(z);
    const Tensor y = from_device(norm.y, z.shape);
    for (std::int64_t c = 0; c < z.shape[1]; ++c) {
      const Channel channel(norm.x, c);
      const double factor = channel.inverse * at(norm.weight, c);
      const double shift = at(norm.bias, c) - channel.mean * factor;
      for_channel(z.shape, c, [&](std::int64_t i) {
        const double beside = z.residual ? at(norm.beside, i) : 0;
        double want = at(norm.x, i) * factor + shift + beside;
        if (z.relu) want = std::min(std::max(want, 0.0), z.most);
        const double size = std::abs(at(norm.x, i) * factor) + std::abs(shift) + std::abs(beside);
        EXPECT_LE(std::abs(at(y, i) - want), unit(z.half) * std::abs(want) + 0x1p-20 * size + kTiny)
            << z.text() << " element " << i << ": got " << at(y, i) << ", expected " << want;
      });
      const double unbiased = channel.variance * channel.count / (channel.count - 1);
      const double spread = std::abs(channel.mean) + std::sqrt(channel.variance);
      EXPECT_NEAR(norm.mean.to(Device{}).at(c), channel.mean, 1e-6 * spread) << z.text();
      EXPECT_NEAR(norm.inverse.to(Device{}).at(c), channel.inverse, 1e-5 * channel.inverse);
      EXPECT_NEAR(norm.running_mean.to(Device{}).at(c), 0.45 + 0.1 * channel.mean, 1e-5 * spread);
      EXPECT_NEAR(norm.running_variance.to(Device{}).at(c), 1.8 + 0.1 * unbiased,
                  1e-5 * (1 + unbiased));
    }
  });
}

TEST_F(HalfImagesOnCuda, BatchNormPassesGradientsToItsInputsAndParameters) {
  for_norm_cases([](const NormCase& z) {
    const Norm norm(z);
    const Tensor y = from_device(norm.y, z.shape);
    const Tensor dy = random(z.shape, z.half, 7, 0.2);
    const Tensor before = random(z.shape, z.half, 8);
    const Tensor dx = poisoned(z.shape, z.half);
    const Tensor beside = on_device(before, z.half);
    const Tensor dw = Tensor::full({z.shape[1]}, 3, DType::f32, cuda());
    const Tensor db = Tensor::full({z.shape[1]}, kNaN, DType::f32, cuda());
    batch_norm_half_gradient_kernel.get(cuda())(
        {.dy = on_device(dy, z.half),
         .x = on_device(norm.x, z.half),
         .weight = norm.weight.to(cuda()),
         .relu = z.relu,
         .most = static_cast<float>(z.most),
         .y = z.relu && z.residual ? norm.y : Tensor(),
         .mean = norm.mean,
         .inverse_deviation = norm.inverse,
         .factors = norm.factors,
         .residual_gradient = z.residual ? beside : Tensor(),
         .residual_accumulate = true,
         .dx = dx,
         .dw = dw,
         .db = db,
         .dw_accumulate = true,
         .db_accumulate = false});
    const Tensor got = from_device(dx, z.shape);
    const Tensor got_beside = from_device(beside, z.shape);
    const auto g = [&](std::int64_t i) {
      const bool passes = !z.relu || (at(y, i) > 0 && at(y, i) < z.most);
      return passes ? at(dy, i) : 0.0;
    };
    for (std::int64_t c = 0; c < z.shape[1]; ++c) {
      const Channel channel(norm.x, c);
      double sum = 0, sum_x = 0, size = 0, size_x = 0;
      const auto xhat = [&](std::int64_t i) {
        return (at(norm.x, i) - channel.mean) * channel.inverse;
      };
      for_channel(z.shape, c, [&](std::int64_t i) {
        sum += g(i);
        sum_x += g(i) * xhat(i);
        size += std::abs(g(i));
        size_x += std::abs(g(i) * xhat(i));
      });
      // 64 sums in f32, and the mean rounded to f32.
      const double slop = 0x1p-18 * (1 + std::abs(channel.mean) * channel.inverse);
      EXPECT_NEAR(db.to(Device{}).at(c), sum, slop * size + 1e-6) << z.text();
      EXPECT_NEAR(dw.to(Device{}).at(c) - 3, sum_x, slop * (size_x + size) + 1e-5) << z.text();
      const double factor = channel.inverse * at(norm.weight, c);
      for_channel(z.shape, c, [&](std::int64_t i) {
        const double want = factor * (g(i) - sum / channel.count - xhat(i) * sum_x / channel.count);
        const double sum_terms = (size + std::abs(xhat(i)) * (size_x + size)) / channel.count;
        const double allowed = unit(z.half) * std::abs(want) +
                               slop * std::abs(factor) * (std::abs(g(i)) + sum_terms) + kTiny;
        EXPECT_LE(std::abs(at(got, i) - want), allowed)
            << z.text() << " element " << i << ": got " << at(got, i) << ", expected " << want;
        if (!z.residual) return;
        EXPECT_EQ(at(got_beside, i),
                  static_cast<double>(matrix::rounded_to(
                      z.half, static_cast<float>(at(before, i)) + static_cast<float>(g(i)))))
            << z.text();
      });
    }
  });
}

TEST_F(HalfImagesOnCuda, BatchNormAppliesScaleAndShiftInInference) {
  for (const DType half : kImageTypes) {
    for (const Shape& shape : kShapes) {
      const Tensor x = random(shape, half, 1), beside = random(shape, half, 2);
      const Tensor factor = normal({shape[1]}, DType::f64, 3),
                   shift = normal({shape[1]}, DType::f64, 4),
                   mean = normal({shape[1]}, DType::f64, 5);
      const Tensor y = poisoned(shape, half);
      batch_norm_half_apply_kernel.get(cuda())({.x = on_device(x, half),
                                                .mean = mean.to(cuda()),
                                                .factor = factor.to(cuda()),
                                                .shift = shift.to(cuda()),
                                                .residual = on_device(beside, half),
                                                .relu = true,
                                                .y = y});
      const Tensor got = from_device(y, shape);
      for (std::int64_t c = 0; c < shape[1]; ++c) {
        for_channel(shape, c, [&](std::int64_t i) {
          const double away = at(x, i) - mean.at(c);
          const double sum = away * factor.at(c) + shift.at(c) + at(beside, i);
          const double size =
              std::abs(away * factor.at(c)) + std::abs(shift.at(c)) + std::abs(at(beside, i));
          EXPECT_NEAR(at(got, i), std::max(sum, 0.0),
                      unit(half) * std::abs(sum) + 0x1p-20 * size + kTiny);
        });
      }
    }
  }
}

// ---- pools -------------------------------------------------------------------------------------

const Pool2dWindow kWindows[] = {
    {}, {3, 3, 2, 2, 1, 1}, {3, 2, 1, 2, 1, 0, true, false}, {2, 3, 3, 1, 0, 1, true, true}};

// The maximum is one of the inputs, so it is exact. Gradients are summed in f32 in the same order
// as on the CPU.
TEST_F(HalfImagesOnCuda, MaxPoolGivesTheBitsOfTheCpu) {
  for (const DType half : kImageTypes) {
    for (const Shape& shape : {Shape{2, 5, 8, 9}, Shape{1, 72, 5, 6}}) {
      for (const Pool2dWindow& window : kWindows) {
        const Shape out = window.output_shape(shape, "max_pool2d");
        Tensor x = random(shape, half, 1);
        x.data<float>()[7] = x.data<float>()[8];  // equals: the first one gets the gradient
        const Tensor dy = random(out, half, 2);
        const Tensor y = poisoned(out, half), dx = poisoned(shape, half);
        const Tensor taps = Tensor::zeros(stored_shape(out, kLast), DType::u8, cuda());
        max_pool_kernel.get(cuda())(on_device(x, half), window, y, taps);
        max_pool_gradient_kernel.get(cuda())(on_device(dy, half), taps, window, dx);
        const Tensor want = Tensor::empty(out), want_taps = Tensor::empty(out, DType::u8);
        const Tensor want_dx = Tensor::empty(shape);
        max_pool_kernel.get(Device{})(x, window, want, want_taps);
        max_pool_gradient_kernel.get(Device{})(dy, want_taps, window, want_dx);
        EXPECT_TRUE(testing::same_bits(from_device(y, out), want));
        EXPECT_TRUE(testing::same_bits(plain_images(taps.to(Device{}), out, kLast), want_taps));
        EXPECT_TRUE(near(from_device(dx, shape), rounded(want_dx, half), 0, 0));
      }
    }
  }
}

TEST_F(HalfImagesOnCuda, MaxPoolOfLargeWindowsAndOfNaN) {
  const Shape shape{1, 3, 20, 20}, out{1, 3, 1, 1};
  const Pool2dWindow window{20, 20, 20, 20};
  Tensor x = random(shape, DType::bf16, 1);
  x.data<float>()[433] = std::numeric_limits<float>::quiet_NaN();
  const Tensor y = poisoned(out, DType::bf16), dx = poisoned(shape, DType::bf16);
  const Tensor taps = Tensor::zeros(stored_shape(out, kLast), DType::i32, cuda());
  max_pool_kernel.get(cuda())(on_device(x, DType::bf16), window, y, taps);
  max_pool_gradient_kernel.get(cuda())(on_device(Tensor::full(out, 2), DType::bf16), taps, window,
                                       dx);
  EXPECT_TRUE(std::isnan(at(from_device(y, out), 1)));
  EXPECT_EQ(at(from_device(dx, shape), 433), 2);
  double sum = 0;
  for (std::int64_t i = 0; i < 1200; ++i) sum += at(from_device(dx, shape), i);
  EXPECT_EQ(sum, 6);
}

TEST_F(HalfImagesOnCuda, MeansAreThoseOfTheCpuRoundedOnce) {
  const auto check = [](const Tensor& got, const Tensor& want, DType half) {
    EXPECT_TRUE(near(got, want, 0x1p-22, unit(half) * 1.01)) << name_of(half);
  };
  for (const DType half : kImageTypes) {
    const Shape shape{2, 21, 8, 9};
    const Tensor x = random(shape, half, 1), on = on_device(x, half);
    for (const Pool2dWindow& window : kWindows) {
      const Shape out = window.output_shape(shape, "avg_pool2d");
      const Tensor dy = random(out, half, 2);
      const Tensor y = poisoned(out, half), dx = poisoned(shape, half);
      avg_pool_kernel.get(cuda())(on, window, y);
      avg_pool_gradient_kernel.get(cuda())(on_device(dy, half), window, dx);
      const Tensor want = Tensor::empty(out), want_dx = Tensor::empty(shape);
      avg_pool_kernel.get(Device{})(x, window, want);
      avg_pool_gradient_kernel.get(Device{})(dy, window, want_dx);
      check(from_device(y, out), want, half);
      check(from_device(dx, shape), want_dx, half);
    }
    for (const Shape& out : {Shape{2, 21, 1, 1}, Shape{2, 21, 3, 4}, Shape{2, 21, 11, 9}}) {
      const Tensor dy = random(out, half, 2);
      const Tensor y = poisoned(out, half), dx = poisoned(shape, half);
      adaptive_pool_kernel.get(cuda())(on, y);
      adaptive_pool_gradient_kernel.get(cuda())(on_device(dy, half), dx);
      const Tensor want = Tensor::empty(out), want_dx = Tensor::empty(shape);
      adaptive_pool_kernel.get(Device{})(x, want);
      adaptive_pool_gradient_kernel.get(Device{})(dy, want_dx);
      check(from_device(y, out), want, half);
      check(from_device(dx, shape), want_dx, half);
    }
  }
}

// ---- activations and sums ----------------------------------------------------------------------

TEST_F(HalfImagesOnCuda, ActivationsAndSumsAreComputedInF32AndRoundedOnce) {
  for (const DType half : kImageTypes) {
    const Shape shape{2, 5, 3, 7};
    const Tensor a = random(shape, half, 1), b = random(shape, half, 2);
    const Tensor on_a = on_device(a, half), on_b = on_device(b, half);
    const auto want = [&](const std::function<float(float, float)>& f) {
      Tensor out = Tensor::empty(shape);
      for (std::int64_t i = 0; i < out.numel(); ++i) {
        out.data<float>()[i] = f(a.data<float>()[i], b.data<float>()[i]);
      }
      return rounded(out, half);
    };
    Tensor y = poisoned(shape, half);
    binary_kernel.get(cuda())(BinaryOp::add, on_a, on_b, y);
    EXPECT_TRUE(near(from_device(y, shape), want([](float p, float q) { return p + q; }), 0, 0));
    unary_kernel.get(cuda())(UnaryOp::relu, on_a, y);
    EXPECT_TRUE(
        near(from_device(y, shape), want([](float p, float) { return std::max(p, 0.0f); }), 0, 0));
    unary_kernel.get(cuda())(UnaryOp::tanh, on_a, y);
    // Each result is rounded once to its type. In f32, CUDA's tanhf has an additional error of 2
    // units in the last place.
    EXPECT_TRUE(near(from_device(y, shape), want([](float p, float) { return std::tanh(p); }), 0,
                     2 * unit(half) + 4 * 0x1p-24));
    gradient_kernel.get(cuda())(GradientOp::relu, on_a, on_b, y);
    EXPECT_TRUE(
        near(from_device(y, shape), want([](float p, float q) { return p > 0 ? q : 0; }), 0, 0));
    accumulate_kernel.get(cuda())(on_b, on_a);
    EXPECT_TRUE(near(from_device(on_b, shape), want([](float p, float q) { return q + p; }), 0, 0));
  }
}

TEST_F(HalfImagesOnCuda, TheGradientOfABiasIsASumInF32) {
  for (const DType half : kImageTypes) {
    for (const Shape& shape : kShapes) {
      for (const bool accumulate : {false, true}) {
        const Tensor dy = random(shape, half, 1, 1);
        const Tensor db = Tensor::full({shape[1]}, accumulate ? 2 : kNaN, DType::f32, cuda());
        conv2d_bias_gradient_kernel.get(cuda())(on_device(dy, half), db, accumulate);
        for (std::int64_t c = 0; c < shape[1]; ++c) {
          double want = accumulate ? 2 : 0, size = 2;
          for_channel(shape, c, [&](std::int64_t i) {
            want += at(dy, i);
            size += std::abs(at(dy, i));
          });
          EXPECT_NEAR(db.to(Device{}).at(c), want, 8 * 0x1p-23 * size) << shape.str();
        }
      }
    }
  }
}

}  // namespace
}  // namespace convscope
