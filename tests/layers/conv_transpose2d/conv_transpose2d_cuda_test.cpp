// SPDX-License-Identifier: Apache-2.0
// conv_transpose2d_cuda_test.cpp: the transposed convolution on `device cuda`, compared with the
// CPU.
#include <algorithm>
#include <cmath>
#include <utility>

#include "layers/conv_transpose2d/conv_transpose2d.h"
#include "tests/support/compiled_step.h"
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

// Each operand has a relative error of at most one rounding: 2^-8 in bf16, 2^-11 in f16.
TEST_F(ConvTranspose2dOnCuda, RoundsItsOperandsInHalfPrecision) {
  const Tensor x = testing::normal({2, 16, 5, 6}, DType::f32, 1),
               w = testing::normal({16, 8, 3, 3}, DType::f32, 2),
               dy = testing::normal({2, 8, 10, 12}, DType::f32, 3);
  const auto results = [&](ComputePrecision precision) {
    const ConvTranspose2dParams params{
        .conv = {.stride_h = 2, .stride_w = 2, .padding = {1, 1, 1, 1}, .precision = precision},
        .output_padding_h = 1,
        .output_padding_w = 1};
    Variable of_x(x.to(testing::cuda()), true), of_w(w.to(testing::cuda()), true);
    const Variable y = conv_transpose2d(of_x, of_w, Variable(), params);
    y.backward(dy.to(testing::cuda()));
    return testing::on({y.value(), of_x.grad(), of_w.grad()}, Device{});
  };
  const std::vector<Tensor> want = results(ComputePrecision::f32);
  for (const auto& [precision, unit] :
       {std::pair(ComputePrecision::bf16, 0x1p-8), std::pair(ComputePrecision::f16, 0x1p-11)}) {
    const std::vector<Tensor> got = results(precision);
    for (std::size_t i = 0; i < want.size(); ++i) {
      double largest = 0, error = 0;
      for (std::int64_t j = 0; j < want[i].numel(); ++j) {
        largest = std::max(largest, std::abs(want[i].at(j)));
        error = std::max(error, std::abs(want[i].at(j) - got[i].at(j)));
      }
      EXPECT_LE(error, 3 * unit * largest) << i;
      EXPECT_GT(error, unit * largest / 64) << i;
    }
  }
}

// Both steps round the same operands. A sum in another order may round to the next number.
TEST_F(ConvTranspose2dOnCuda, IsCompiledInHalfPrecision) {
  Options up;
  up.set("out_channels", std::int64_t{16});
  up.set("kernel_size", std::vector<std::int64_t>{2});
  up.set("stride", std::vector<std::int64_t>{2});
  for (const auto& [precision, unit] :
       {std::pair(ComputePrecision::bf16, 0x1p-8), std::pair(ComputePrecision::f16, 0x1p-11)}) {
    LayerContext place;
    place.device = testing::cuda();
    place.precision = precision;
    const std::string text = testing::expect_compiled_like_eager(
        {{.type = "conv_transpose2d", .name = "up", .options = up},
         {.type = "tanh", .name = "t", .options = {}},
         {.type = "conv_transpose2d", .name = "up2", .options = up}},
        {2, 16, 3, 3}, {}, 2 * unit, place);
    EXPECT_NE(text.find("up  conv_transpose2d "), std::string::npos) << text;
    EXPECT_NE(text.find("up2  conv_transpose2d "), std::string::npos) << text;
    EXPECT_EQ(text.find("conv_transpose2d as a dynamic graph"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace convscope
