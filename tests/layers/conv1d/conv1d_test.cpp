// SPDX-License-Identifier: Apache-2.0
// conv1d_test.cpp: the paddings of conv1d, its algorithms, and its compiled step.
#include <gtest/gtest.h>

#include "layers/conv2d/conv2d.h"
#include "tests/layers/layer_cases.h"
#include "tests/support/compiled_step.h"
#include "tests/support/expect_error.h"

namespace convscope {
namespace {

using testing::build_layer;
using testing::normal;
using testing::options;

Options conv1d(const char* padding, std::int64_t kernel, std::int64_t stride, std::int64_t dilation,
               std::int64_t groups = 1) {
  return options({{"out_channels", std::int64_t{4}},
                  {"kernel_size", kernel},
                  {"stride", stride},
                  {"dilation", dilation},
                  {"groups", groups},
                  {"padding", std::string(padding)}});
}

struct Case {
  const char* padding;
  std::int64_t kernel, stride, dilation, groups, left, right;
};

TEST(Conv1d, HasTheValuesOfItsFormula) {
  constexpr std::int64_t kN = 2, kC = 6, kW = 13;
  const Tensor x = normal({kN, kC, 1, kW}, DType::f32, 1);
  for (const Case& one : {Case{"0", 3, 1, 1, 1, 0, 0}, Case{"2", 3, 2, 1, 2, 2, 2},
                          Case{"same", 4, 1, 2, 1, 3, 3}, Case{"same", 4, 1, 1, 1, 1, 2},
                          Case{"causal", 3, 1, 2, 2, 4, 0}, Case{"causal", 2, 3, 1, 1, 1, 0}}) {
    SCOPED_TRACE(one.padding);
    const auto layer = build_layer(
        "conv1d", conv1d(one.padding, one.kernel, one.stride, one.dilation, one.groups), x.shape());
    const Tensor y = layer->forward(Variable(x)).value();
    const Tensor w = layer->parameters()[0].variable.value();
    const Tensor b = layer->parameters()[1].variable.value();
    const std::int64_t width =
        (kW + one.left + one.right - one.dilation * (one.kernel - 1) - 1) / one.stride + 1;
    ASSERT_EQ(y.shape(), (Shape{kN, 4, 1, width}));
    ASSERT_EQ(layer->output_shape(x.shape()), y.shape());
    const std::int64_t channels = kC / one.groups;
    for (std::int64_t at = 0; at < y.numel(); ++at) {
      const std::int64_t q = at % width, k = at / width % 4, n = at / (4 * width);
      const std::int64_t first = k / (4 / one.groups) * channels;
      double sum = b.at(k);
      for (std::int64_t c = 0; c < channels; ++c) {
        for (std::int64_t s = 0; s < one.kernel; ++s) {
          const std::int64_t j = q * one.stride - one.left + s * one.dilation;
          if (j < 0 || j >= kW) continue;
          sum += x.at((n * kC + first + c) * kW + j) * w.at((k * channels + c) * one.kernel + s);
        }
      }
      ASSERT_NEAR(y.at(at), sum, 1e-5);
    }
  }
}

TEST(Conv1d, IsCompiledWithTheAlgorithmOfItsPolicy) {
  const std::string text = testing::expect_compiled_like_eager(
      {{.type = "conv1d", .name = "c", .options = conv1d("causal", 3, 1, 2)}}, {6, 20, 1, 31},
      {"im2col_gemm", "im2col_gemm", "im2col_gemm"}, 64 * 6e-8);
  EXPECT_NE(text.find("im2col_gemm"), std::string::npos) << text;
}

TEST(Conv1d, NamesWhatIsExpected) {
  const auto build = [](const char* padding, const Shape& x, std::int64_t stride = 1) {
    return build_layer("conv1d", conv1d(padding, 3, stride, 1), x);
  };
  EXPECT_ERROR(ErrorKind::kInvalid,
               "[conv1d] expected x [N,C,1,W], images with one row, got [1,4,9]",
               build("0", {1, 4, 9}));
  EXPECT_ERROR(ErrorKind::kInvalid, "[conv1d] expected x [N,C,1,W], images with one row, got",
               build("0", {1, 4, 2, 9}));
  EXPECT_ERROR(ErrorKind::kInvalid,
               "expected 'padding' to be 0 to 2^20, same or causal, got 'caus'",
               build("caus", {1, 4, 1, 9}));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected 'padding' to be 0 to 2^20, same or causal, got '-1'",
               build("-1", {1, 4, 1, 9}));
  Options number = conv1d("0", 3, 1, 1);
  number.set("padding", std::int64_t{2});
  EXPECT_EQ(build_layer("conv1d", number, {1, 4, 1, 9})->output_shape({1, 4, 1, 9}),
            (Shape{1, 4, 1, 11}));
  number.set("padding", std::int64_t{-2});
  EXPECT_ERROR(ErrorKind::kConfig, "padding: expected 0 to 1048576, got -2",
               build_layer("conv1d", number, {1, 4, 1, 9}));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected stride 1 because padding is 'same', got stride 2",
               build("same", {1, 4, 1, 9}, 2));
}

}  // namespace
}  // namespace convscope
