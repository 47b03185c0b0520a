// SPDX-License-Identifier: Apache-2.0
// conv_transpose2d_cuda_test.cpp: the transposed convolution on `device cuda`, compared with the
// CPU.
#include "layers/conv_transpose2d/conv_transpose2d.h"
#include "tests/support/cuda_like_cpu.h"

namespace convscope {
namespace {

using ConvTranspose2dOnCuda = testing::CudaTest;

// Sums of up to 16 x 9 terms.
TEST_F(ConvTranspose2dOnCuda, HasTheValuesAndGradientsOfTheCpu) {
  const ConvTranspose2dParams halves{
      .conv = {.stride_h = 2, .stride_w = 2, .padding = {1, 1, 1, 1}}, .output_padding_h = 1};
  const ConvTranspose2dParams groups{.conv = {.stride_h = 2, .groups = 2}};
  for (const ConvTranspose2dParams& params : {ConvTranspose2dParams{}, halves, groups}) {
    const std::int64_t out = 8;
    testing::expect_gradients_like_cpu(
        [&](const auto& v) { return conv_transpose2d(v[0], v[1], v[2], params); },
        {testing::normal({2, 16, 5, 6}, DType::f32, 1),
         testing::normal({16, out / params.conv.groups, 3, 3}, DType::f32, 2),
         testing::normal({out}, DType::f32, 3)},
        testing::few_ulp(DType::f32, 256));
  }
}

}  // namespace
}  // namespace convscope
