// SPDX-License-Identifier: Apache-2.0
// softmax_cuda_test.cpp: softmax, channel shuffle and adaptive max-pool on `device cuda`, compared
// with the CPU.
#include "layers/channel_shuffle/channel_shuffle.h"
#include "layers/pool2d/adaptive_max_pool2d.h"
#include "layers/softmax/softmax.h"
#include "tests/support/cuda_like_cpu.h"

namespace convscope {
namespace {

using SoftmaxOnCuda = testing::CudaTest;

TEST_F(SoftmaxOnCuda, HasTheValuesAndGradientsOfTheCpu) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const Shape& shape : {Shape{2, 5, 7, 9}, Shape{9, 70}, Shape{3, 7}, Shape{0, 4}}) {
      SCOPED_TRACE(cat(shape, " ", name_of(dtype)));
      testing::expect_gradients_like_cpu([](const auto& v) { return softmax(v[0], 1); },
                                         {testing::normal(shape, dtype, 1)},
                                         testing::few_ulp(dtype, 32));
    }
  }
}

TEST_F(SoftmaxOnCuda, ChannelShuffleAndAdaptivePoolHaveTheBitsOfTheCpu) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const Shape& shape : {Shape{2, 6, 7, 9}, Shape{0, 6, 4, 4}}) {
      const std::vector<Tensor> inputs{testing::normal(shape, dtype, 1)};
      testing::expect_gradients_like_cpu([](const auto& v) { return channel_shuffle(v[0], 3); },
                                         inputs, {});
      testing::expect_gradients_like_cpu(
          [](const auto& v) { return adaptive_max_pool2d(v[0], 3, 5); }, inputs, {});
    }
  }
}

}  // namespace
}  // namespace convscope
