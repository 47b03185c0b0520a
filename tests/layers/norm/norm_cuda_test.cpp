// SPDX-License-Identifier: Apache-2.0
// norm_cuda_test.cpp: layer norm, layer scale, group norm and stochastic depth on `device cuda`,
// compared with the CPU.
#include "layers/dropout.h"
#include "layers/norm/group_norm.h"
#include "layers/norm/layer_norm.h"
#include "layers/norm/layer_scale.h"
#include "tests/support/cuda_like_cpu.h"

namespace convscope {
namespace {

using NormsOnCuda = testing::CudaTest;

std::vector<Tensor> norm_inputs(const Shape& shape, DType dtype) {
  return {testing::normal(shape, dtype, 1), testing::normal({shape[1]}, dtype, 2),
          testing::normal({shape[1]}, dtype, 3)};
}

// The sums have another order than on the CPU.
TEST_F(NormsOnCuda, LayerNormHasTheValuesAndGradientsOfTheCpu) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const Shape& shape : {Shape{2, 5, 7, 9}, Shape{3, 40, 1, 1}, Shape{70, 36},
                               Shape{1, 67, 8, 8}, Shape{0, 3, 2, 2}}) {
      SCOPED_TRACE(cat(shape, " ", name_of(dtype)));
      testing::expect_gradients_like_cpu(
          [](const auto& v) { return layer_norm(v[0], v[1], v[2], 1e-3); },
          norm_inputs(shape, dtype), testing::few_ulp(dtype, 256));
    }
  }
}

TEST_F(NormsOnCuda, LayerScaleHasTheValuesAndGradientsOfTheCpu) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const Shape& shape : {Shape{2, 5, 7, 9}, Shape{70, 36}, Shape{0, 3, 2, 2}}) {
      SCOPED_TRACE(cat(shape, " ", name_of(dtype)));
      std::vector<Tensor> inputs = norm_inputs(shape, dtype);
      inputs.pop_back();
      testing::expect_gradients_like_cpu([](const auto& v) { return layer_scale(v[0], v[1]); },
                                         inputs, testing::few_ulp(dtype, 64));
    }
  }
}

TEST_F(NormsOnCuda, GroupNormHasTheValuesAndGradientsOfTheCpu) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const Shape& shape : {Shape{2, 6, 7, 9}, Shape{5, 12}, Shape{0, 6, 2, 2}}) {
      SCOPED_TRACE(cat(shape, " ", name_of(dtype)));
      testing::expect_gradients_like_cpu(
          [](const auto& v) { return group_norm(v[0], v[1], v[2], 3, 1e-3); },
          norm_inputs(shape, dtype), testing::few_ulp(dtype, 256));
    }
  }
}

// Images in NHWC, also in half precision. Channels are rounded up to 24.
TEST_F(NormsOnCuda, LayerNormTakesNhwcImages) {
  constexpr std::int64_t kChannels = 20, kStored = 24, kPixels = 33;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    SCOPED_TRACE(std::string(name_of(dtype)));
    Tensor image = testing::normal({1, 1, 3, 11, kStored}, DType::f32, 1);
    Tensor dy = testing::normal({1, 1, 3, 11, kStored}, DType::f32, 4);
    for (std::int64_t i = 0; i < image.numel(); ++i) {
      if (i % kStored >= kChannels) image.data<float>()[i] = dy.data<float>()[i] = 0;
    }
    const Tensor weight = testing::normal({kChannels}, DType::f32, 2);
    const Tensor bias = testing::normal({kChannels}, DType::f32, 3);
    const auto rows = [&](const Tensor& stored) {  // the same numbers as [pixels,C]
      const Tensor rounded = stored.to(dtype).to(DType::f32);
      Tensor out = Tensor::empty({kPixels, kChannels});
      for (std::int64_t i = 0; i < out.numel(); ++i) {
        out.data<float>()[i] = rounded.data<float>()[i / kChannels * kStored + i % kChannels];
      }
      return out;
    };
    Variable x(rows(image), true), w(weight, true), b(bias, true);
    const Variable y = layer_norm(x, w, b, 1e-3);
    y.backward(rows(dy));
    const auto there = [&](const Shape& shape, DType type) {
      return Tensor::empty(shape, type, testing::cuda());
    };
    const Tensor to = there(image.shape(), dtype), dx = there(image.shape(), dtype);
    const Tensor mean = there({kPixels}, DType::f32), inverse = there({kPixels}, DType::f32);
    const Tensor dweight = there({kChannels}, DType::f32), dbias = there({kChannels}, DType::f32);
    const Tensor on_device = image.to(dtype).to(testing::cuda());
    layer_norm_kernel.get(testing::cuda())({.x = on_device,
                                            .weight = weight.to(testing::cuda()),
                                            .bias = bias.to(testing::cuda()),
                                            .eps = 1e-3,
                                            .y = to,
                                            .mean = mean,
                                            .inverse = inverse});
    layer_norm_gradient_kernel.get(testing::cuda())({.dy = dy.to(dtype).to(testing::cuda()),
                                                     .x = on_device,
                                                     .weight = weight.to(testing::cuda()),
                                                     .mean = mean,
                                                     .inverse = inverse,
                                                     .parts = there({3, 3, kChannels}, DType::f64),
                                                     .dx = dx,
                                                     .dweight = dweight,
                                                     .dbias = dbias});
    const double eps = dtype == DType::f32 ? 1e-5 : dtype == DType::f16 ? 2e-3 : 1.6e-2;
    EXPECT_TRUE(testing::near(rows(to.to(Device{}).to(DType::f32)), y.value(), eps, eps));
    EXPECT_TRUE(testing::near(rows(dx.to(Device{}).to(DType::f32)), x.grad(), 2 * eps, eps));
    EXPECT_TRUE(testing::near(dweight.to(Device{}), w.grad(), 1e-4, 1e-5));
    EXPECT_TRUE(testing::near(dbias.to(Device{}), b.grad(), 1e-4, 1e-5));
    const Tensor whole = to.to(Device{}).to(DType::f32);
    for (std::int64_t i = 0; i < whole.numel(); ++i) {
      ASSERT_TRUE(i % kStored < kChannels || whole.at(i) == 0) << "unused lane " << i;
    }
  }
}

TEST_F(NormsOnCuda, StochasticDepthDropsTheImagesThatTheCpuDrops) {
  for (const DropUnit unit : {DropUnit::row, DropUnit::batch}) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      for (const Shape& shape : {Shape{9, 3, 5, 7}, Shape{1, 2, 1, 1}, Shape{0, 2, 1, 1}}) {
        const DropoutMask mask{.seed = 11, .stream = 5, .step = 1234567, .p = 0.4, .unit = unit};
        testing::expect_gradients_like_cpu([&](const auto& v) { return dropout(v[0], mask); },
                                           {testing::normal(shape, dtype, 1)}, {});
      }
    }
  }
}

}  // namespace
}  // namespace convscope
