// SPDX-License-Identifier: Apache-2.0
// upsample_cuda_test.cpp: upsample on `device cuda`, compared with the CPU.
#include "layers/upsample/upsample.h"
#include "tests/support/cuda_like_cpu.h"

namespace convscope {
namespace {

using UpsampleOnCuda = testing::CudaTest;

// Bilinear sums have another order than on the CPU, and the GPU may use FMAs.
TEST_F(UpsampleOnCuda, HasTheValuesAndGradientsOfTheCpu) {
  for (const UpsampleOptions& one :
       {UpsampleOptions{.scale = 2}, UpsampleOptions{.scale = 2.7},
        UpsampleOptions{.p = 3, .q = 19},
        UpsampleOptions{.scale = 2, .mode = UpsampleMode::bilinear},
        UpsampleOptions{.p = 5, .q = 17, .mode = UpsampleMode::bilinear},
        UpsampleOptions{.p = 1, .q = 17, .mode = UpsampleMode::bilinear, .align_corners = true}}) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      for (const Shape& shape : {Shape{2, 3, 7, 9}, Shape{1, 1, 1, 1}, Shape{0, 3, 2, 2}}) {
        SCOPED_TRACE(cat(shape, " ", one.scale, " ", name_of(dtype)));
        const bool exact = one.mode == UpsampleMode::nearest;
        testing::expect_gradients_like_cpu(
            [&](const auto& v) { return upsample(v[0], one); }, {testing::normal(shape, dtype, 1)},
            exact ? testing::few_ulp(dtype, 4) : testing::few_ulp(dtype, 64));
      }
    }
  }
}

// NHWC images in half precision: one plane with 8 lanes.
TEST_F(UpsampleOnCuda, TakesNhwcImagesInHalfPrecision) {
  for (const UpsampleMode mode : {UpsampleMode::nearest, UpsampleMode::bilinear}) {
    const UpsampleOptions doubled{.scale = 2, .mode = mode};
    const Tensor x = testing::normal({1, 1, 3, 5, 8}, DType::f32, 1).to(DType::bf16);
    const UpsampleAxis rows{3, 6, 0.5, mode, false}, columns{5, 10, 0.5, mode, false};
    const Tensor y = Tensor::empty({1, 1, 6, 10, 8}, DType::bf16, testing::cuda());
    upsample_kernel.get(testing::cuda())({1, 8, rows, columns}, x.to(testing::cuda()), y);
    const Tensor got = y.to(Device{}).to(DType::f32), from = x.to(DType::f32);
    for (std::int64_t lane = 0; lane < 8; ++lane) {
      Tensor image = Tensor::empty({1, 1, 3, 5});
      for (std::int64_t i = 0; i < 15; ++i) {
        image.data<float>()[i] = from.data<float>()[8 * i + lane];
      }
      const Tensor want = upsample(Variable(image), doubled).value();
      for (std::int64_t i = 0; i < want.numel(); ++i) {
        ASSERT_NEAR(got.at(8 * i + lane), want.at(i), 0x1p-8 * std::abs(want.at(i)) + 1e-6);
      }
    }
  }
}

}  // namespace
}  // namespace convscope
