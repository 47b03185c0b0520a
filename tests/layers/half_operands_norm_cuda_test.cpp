// SPDX-License-Identifier: Apache-2.0
// half_operands_norm_cuda_test.cpp: tests a batch norm on f32 NHWC images that writes y and dx also
// as fp16 operands. An fp16 operand is the f32 number times a scale, rounded to fp16. The scale is
// a power of two that follows from an upper bound on the f32 numbers.
#include "framework/precision.h"
#include "layers/batch_norm2d/batch_norm2d.h"
#include "layers/batch_norm2d/batch_norm2d_half.h"
#include "layers/dispatch/activation_layout.h"
#include "tests/support/cuda.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using testing::cuda;
using testing::normal;
using OperandsOfNormOnCuda = testing::CudaTest;

constexpr ActivationLayout kLast = ActivationLayout::nhwc;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
const Shape kShapes[] = {{3, 5, 4, 6}, {2, 24, 3, 5}, {2, 72, 7, 3}, {9, 8, 31, 17}};

enum class Data { normal, offset, heavy_tails };

Tensor numbers(const Shape& shape, Data data, std::uint64_t seed) {
  Tensor out = normal(shape, DType::f32, seed);
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    float& v = out.data<float>()[i];
    if (data == Data::offset) v += 40;
    if (data == Data::heavy_tails) v = std::sinh(3 * v);
  }
  return out;
}
Tensor on_device(const Tensor& plain) { return stored_images(plain, kLast).to(cuda()); }
Tensor poisoned(const Shape& images) {
  return Tensor::full(stored_shape(images, kLast), kNaN, DType::f32, cuda());
}
Tensor block_for(const Shape& images) {
  const std::size_t bytes = half_operands_bytes(stored_shape(images, kLast).numel());
  return Tensor::full({static_cast<std::int64_t>(bytes)}, 255, DType::u8, cuda());
}

struct Head {
  double scale = 0, bound = 0;
};
Head head_of(const Tensor& block) {
  const Tensor host = block.to(Device{});
  const auto* const head = static_cast<const float*>(host.raw_data());
  return {head[0], head[1]};
}

// Checks that each fp16 number is the f32 number times the scale, rounded once, and that the scale
// follows from `bound`.
void expect_operands(const Tensor& block, const Tensor& stored, double bound, const char* what) {
  const Tensor host = block.to(Device{}), numbers = stored.to(Device{});
  const float scale = *static_cast<const float*>(host.raw_data());
  const auto* const fp16 = static_cast<const Float16*>(half_operands_in(host.raw_data()).fp16);
  double largest = 0;
  for (std::int64_t i = 0; i < numbers.numel(); ++i) {
    const float v = numbers.data<float>()[i];
    EXPECT_EQ(fp16[i].bits, Float16(v * scale).bits) << what << " element " << i;
    if (std::isfinite(v)) largest = std::max(largest, std::abs(static_cast<double>(v)));
  }
  EXPECT_LE(largest, bound * 1.0001) << what;
  EXPECT_LT(bound * static_cast<double>(scale), 0x1p14) << what;
  EXPECT_GE(bound * static_cast<double>(scale), 0x1p13 * 0.9999) << what;
}

struct Norm {
  Norm(const Shape& shape, Data data, bool residual, float most = kInfinity)
      : x(on_device(numbers(shape, data, 1))),
        beside(residual ? on_device(numbers(shape, data, 2)) : Tensor()),
        weight(normal({shape[1]}, DType::f32, 4)),
        bias(normal({shape[1]}, DType::f32, 5)),
        mean(Tensor::empty({shape[1]}, DType::f64, cuda())),
        inverse(Tensor::empty({shape[1]}, DType::f64, cuda())),
        factors(Tensor::empty({3, x.dim(4)}, DType::f32, cuda())),
        args{.x = x,
             .weight = weight.to(cuda()),
             .bias = bias.to(cuda()),
             .eps = 1e-5,
             .momentum = 0.1,
             .residual = beside,
             .relu = true,
             .most = most,
             .y = {},
             .mean = mean,
             .inverse_deviation = inverse,
             .factors = factors,
             .running_mean = Tensor::zeros({shape[1]}, DType::f32, cuda()),
             .running_variance = Tensor::zeros({shape[1]}, DType::f32, cuda())} {}
  void run() const { batch_norm_half_kernel.get(cuda())(args); }
  // max |weight| sqrt(N H W) + |bias|
  double bound(const Shape& shape) const {
    double largest = 0;
    for (std::int64_t c = 0; c < shape[1]; ++c) {
      largest =
          std::max(largest, std::abs(weight.at(c)) *
                                    std::sqrt(static_cast<double>(shape[0] * shape[2] * shape[3])) +
                                std::abs(bias.at(c)));
    }
    return largest;
  }
  Tensor x, beside, weight, bias, mean, inverse, factors;
  BatchNormHalfArgs args;
};

// If x is constant, x - mean is 0, so y must be exactly the bias. A kernel that computed x factor
// separately would leave the rounding error of this product in y. The test covers every type.
TEST_F(OperandsOfNormOnCuda, AConstantChannelBecomesItsBias) {
  const Shape shape{2, 9, 4, 5};
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Tensor x = Tensor::full(shape, dtype == DType::f16 ? 40000 : 123456.7);
    Norm norm(shape, Data::normal, /*residual=*/false);
    norm.args.relu = false;
    norm.args.x = stored_images(x.to(dtype).to(DType::f32), kLast).to(dtype).to(cuda());
    norm.args.y = Tensor::full(norm.args.x.shape(), kNaN, dtype, cuda());
    norm.run();
    const Tensor y = plain_images(norm.args.y.to(Device{}).to(DType::f32), shape, kLast);
    const Tensor bias = norm.bias.to(dtype).to(DType::f32);
    for (std::int64_t i = 0; i < y.numel(); ++i)
      ASSERT_EQ(y.at(i), bias.at(i / 20 % 9)) << name_of(dtype) << " at " << i;
  }
  const Variable x(Tensor::full(shape, 3.33e9).to(cuda()));
  const Variable weight(Tensor::full({9}, 1.0).to(cuda())),
      bias(Tensor::full({9}, 0.25).to(cuda()));
  const Tensor mean = Tensor::full({9}, 3.33e9).to(cuda()),
               variance = Tensor::zeros({9}).to(cuda());
  for (const Tensor& y : {batch_norm2d(x, weight, bias, 1e-5).value(),
                          batch_norm2d(x, weight, bias, mean, variance, 1e-5).value()}) {
    for (const float v : testing::values_of<float>(y)) ASSERT_EQ(v, 0.25f);
  }
}

// The squares of x overflow f32 here. The kernel must return NaN, because with an infinite variance
// every y would silently be 0.
TEST_F(OperandsOfNormOnCuda, SquaresBeyondF32AreSeen) {
  const Shape shape{3, 5, 4, 6};
  Norm norm(shape, Data::normal, /*residual=*/false);
  Tensor large = normal(shape, DType::f32, 1);
  for (std::int64_t i = 0; i < large.numel(); ++i) large.data<float>()[i] *= 1e20f;
  norm.args.x = on_device(large);
  norm.args.y = poisoned(shape);
  norm.args.relu = false;
  norm.run();
  const Tensor y = plain_images(norm.args.y.to(Device{}), shape, kLast);
  for (std::int64_t i = 0; i < y.numel(); ++i) ASSERT_TRUE(std::isnan(y.at(i))) << i;
}

TEST_F(OperandsOfNormOnCuda, ItsResultIsScaledByABoundAndRoundedOnce) {
  for (const Data data : {Data::normal, Data::offset, Data::heavy_tails}) {
    for (const Shape& shape : kShapes) {
      Norm norm(shape, data, /*residual=*/false);
      norm.args.y = poisoned(shape);
      norm.args.y_half = block_for(shape);
      norm.run();
      const double bound = norm.bound(shape);
      EXPECT_NEAR(head_of(norm.args.y_half).bound, bound, 1e-5 * bound);
      expect_operands(norm.args.y_half, norm.args.y, bound, shape.str().c_str());
      // The f32 numbers may be omitted.
      const Tensor before = norm.args.y_half.to(Device{});
      norm.args.y = Tensor();
      norm.args.y_half = block_for(shape);
      norm.run();
      EXPECT_TRUE(testing::same_bits(before, norm.args.y_half.to(Device{})));
    }
  }
}

TEST_F(OperandsOfNormOnCuda, TheBoundOfAResidualIsAdded) {
  for (const bool has_bound : {false, true}) {
    const Shape shape{2, 24, 5, 7};
    Norm norm(shape, Data::normal, /*residual=*/true);
    norm.args.y = poisoned(shape);
    norm.args.y_half = block_for(shape);
    const float head[] = {0x1p9F, 21};
    const Tensor beside = Tensor::zeros({8}, DType::u8);
    std::memcpy(beside.raw_data(), head, sizeof head);
    norm.args.residual_half = beside.to(cuda());
    norm.args.residual_has_bound = has_bound;
    norm.run();
    const double bound = norm.bound(shape) + (has_bound ? 21 : 0x1p5);
    EXPECT_NEAR(head_of(norm.args.y_half).bound, bound, 1e-5 * bound);
    expect_operands(norm.args.y_half, norm.args.y, bound, has_bound ? "bound" : "scale");
  }
}

TEST_F(OperandsOfNormOnCuda, AnActivationWithABoundIsOne) {
  const Shape shape{2, 8, 5, 7};
  Norm norm(shape, Data::normal, /*residual=*/false, 1.5F);
  norm.args.y = poisoned(shape);
  norm.args.y_half = block_for(shape);
  norm.run();
  expect_operands(norm.args.y_half, norm.args.y, 1.5, "bounded");
}

TEST_F(OperandsOfNormOnCuda, WithOnlyABoundNoOperandsAreWritten) {
  const Shape shape{2, 8, 5, 7};
  Norm norm(shape, Data::normal, /*residual=*/false);
  norm.args.y = poisoned(shape);
  norm.args.y_half = Tensor::full({8}, 255, DType::u8, cuda());
  norm.args.bound_alone = true;
  norm.run();
  EXPECT_NEAR(head_of(norm.args.y_half).bound, norm.bound(shape), 1e-4);
}

TEST_F(OperandsOfNormOnCuda, ANumberThatIsNoneStaysNone) {
  const Shape shape{2, 8, 5, 7};
  Norm norm(shape, Data::normal, /*residual=*/false);
  Tensor plain = numbers(shape, Data::normal, 1);
  plain.data<float>()[3 * 35 + 2] = std::numeric_limits<float>::quiet_NaN();
  norm.args.x = on_device(plain);
  norm.args.y = poisoned(shape);
  norm.args.y_half = block_for(shape);
  norm.run();
  const Tensor host = norm.args.y_half.to(Device{});
  const auto* const fp16 = static_cast<const Float16*>(half_operands_in(host.raw_data()).fp16);
  for (std::int64_t i = 0; i < 70 * 8; ++i) {
    EXPECT_EQ(std::isnan(static_cast<float>(fp16[i])), i % 8 == 3) << i;
  }
}

TEST_F(OperandsOfNormOnCuda, TheGradientOfItsInputIsScaledByABoundAndRoundedOnce) {
  for (const Data data : {Data::normal, Data::offset, Data::heavy_tails}) {
    for (const Shape& shape : kShapes) {
      for (const bool residual : {false, true}) {
        Norm norm(shape, data, residual);
        norm.args.y = poisoned(shape);
        norm.run();
        BatchNormHalfGradientArgs args{.dy = on_device(numbers(shape, data, 7)),
                                       .x = norm.x,
                                       .weight = norm.args.weight,
                                       .relu = true,
                                       .y = residual ? norm.args.y : Tensor(),
                                       .mean = norm.mean,
                                       .inverse_deviation = norm.inverse,
                                       .factors = norm.factors,
                                       .residual_gradient = residual ? poisoned(shape) : Tensor(),
                                       .dx = poisoned(shape),
                                       .dx_half = block_for(shape),
                                       .dw = {},
                                       .db = {}};
        const auto run = batch_norm_half_gradient_kernel.get(cuda());
        run(args);
        const Tensor dx = args.dx.to(Device{}), block = args.dx_half.to(Device{});
        double largest = 0;
        for (std::int64_t i = 0; i < dx.numel(); ++i) {
          largest = std::max(largest, std::abs(dx.at(i)));
        }
        const double scale = head_of(block).scale;
        // No number exceeds the bound. With one channel, the bound is too large by a factor of at
        // most sqrt(N H W) + 2. Channels with different weights and deviations increase this
        // factor.
        EXPECT_LT(largest * scale, 0x1p14) << shape.str();
        EXPECT_GT(largest * scale, 0x1p13 / 4096) << shape.str();
        const auto* const fp16 =
            static_cast<const Float16*>(half_operands_in(block.raw_data()).fp16);
        for (std::int64_t i = 0; i < dx.numel(); ++i) {
          const float v = dx.data<float>()[i] * static_cast<float>(scale);
          EXPECT_EQ(fp16[i].bits, Float16(v).bits) << shape.str() << " element " << i;
        }
        args.dx = Tensor();
        args.dx_half = block_for(shape);
        run(args);
        EXPECT_TRUE(testing::same_bits(block, args.dx_half.to(Device{})));
      }
    }
  }
}

// dx contains a multiple of x - mean. So for an outlier x, dx is large even where dy is 0.
TEST_F(OperandsOfNormOnCuda, TheGradientWhereXLiesFarOutIsBelowTheBound) {
  const Shape shape{9, 1, 31, 17};
  Tensor x = numbers(shape, Data::normal, 1), dy = Tensor::empty(shape);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    dy.data<float>()[i] = x.data<float>()[i] > 0 ? 1.0F : -1.0F;
  }
  x.data<float>()[100] = 70;
  dy.data<float>()[100] = 0;
  Norm norm(shape, Data::normal, /*residual=*/false);
  norm.args.x = on_device(x);
  norm.args.y = poisoned(shape);
  norm.args.relu = false;
  norm.run();
  const Tensor dx = poisoned(shape), block = block_for(shape);
  batch_norm_half_gradient_kernel.get(cuda())({.dy = on_device(dy),
                                               .x = norm.args.x,
                                               .weight = norm.args.weight,
                                               .y = {},
                                               .mean = norm.mean,
                                               .inverse_deviation = norm.inverse,
                                               .factors = norm.factors,
                                               .residual_gradient = {},
                                               .dx = dx,
                                               .dx_half = block,
                                               .dw = {},
                                               .db = {}});
  const double outlier = std::abs(dx.to(Device{}).at(100 * 8));
  EXPECT_GT(outlier, 8 * std::abs(norm.weight.at(0)));  // more than |a g| + |d|
  EXPECT_LT(outlier * head_of(block).scale, 0x1p14);
}

}  // namespace
}  // namespace convscope
