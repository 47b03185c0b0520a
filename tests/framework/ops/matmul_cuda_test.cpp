// SPDX-License-Identifier: Apache-2.0
// matmul_cuda_test.cpp: compares matrix products, padding and the loss on a GPU with the CPU.
#include "framework/ops/gemm/matmul.h"
#include "framework/ops/pad.h"
#include "framework/ops/softmax_cross_entropy.h"
#include "layers/linear/linear.h"
#include "layers/losses/cross_entropy.h"
#include "tests/support/cuda_like_cpu.h"
#include "tests/support/expect_error.h"

namespace convscope {
namespace {

using testing::expect_gradients_like_cpu;
using testing::expect_like_cpu;
using testing::few_ulp;
using testing::normal;
using MatmulOnCuda = testing::CudaTest;
using PadOnCuda = testing::CudaTest;
using SoftmaxOnCuda = testing::CudaTest;

constexpr DType kTypes[] = {DType::f32, DType::f64};

TEST_F(MatmulOnCuda, MultipliesInAllFourTranspositions) {
  for (const DType dtype : kTypes) {
    for (const Transpose ta : {Transpose::no, Transpose::yes}) {
      for (const Transpose tb : {Transpose::no, Transpose::yes}) {
        const Tensor a = normal(ta == Transpose::no ? Shape{5, 17} : Shape{17, 5}, dtype, 1);
        const Tensor b = normal(tb == Transpose::no ? Shape{17, 9} : Shape{9, 17}, dtype, 2);
        // Each element is a sum of 17 products of size 1. The error is a few ulp of the sum over
        // their magnitudes.
        expect_gradients_like_cpu([&](const auto& v) { return matmul(v[0], v[1], ta, tb); }, {a, b},
                                  few_ulp(dtype, 64));
      }
    }
  }
}

TEST_F(MatmulOnCuda, TakesEmptyOperands) {
  expect_gradients_like_cpu([](const auto& v) { return matmul(v[0], v[1]); },
                            {normal({0, 3}, DType::f32), normal({3, 4}, DType::f32)}, {});
  expect_gradients_like_cpu([](const auto& v) { return matmul(v[0], v[1]); },
                            {normal({2, 0}, DType::f32), normal({0, 4}, DType::f32)}, {});
}

TEST_F(MatmulOnCuda, ComputesALinearLayerWithAndWithoutBias) {
  for (const DType dtype : kTypes) {
    for (const std::int64_t n : {0, 1, 7}) {
      const Tensor x = normal({n, 13}, dtype, 1);
      const Tensor w = normal({6, 13}, dtype, 2);
      expect_gradients_like_cpu([](const auto& v) { return linear(v[0], v[1], v[2]); },
                                {x, w, normal({6}, dtype, 3)}, few_ulp(dtype, 64));
      expect_gradients_like_cpu([](const auto& v) { return linear(v[0], v[1], v[2]); },
                                {x, w, Tensor()}, few_ulp(dtype, 64));
    }
  }
}

TEST_F(PadOnCuda, FramesImagesInEveryMode) {
  for (const DType dtype : kTypes) {
    for (int mode = 0; mode < kPadModeCount; ++mode) {
      for (const Padding2d& padding :
           {Padding2d{1, 2, 3, 0}, Padding2d{0, 3, 0, 4}, Padding2d{2, 2, 2, 2}}) {
        SCOPED_TRACE(cat(name_of(static_cast<PadMode>(mode)), " ", name_of(dtype)));
        expect_gradients_like_cpu(
            [&](const auto& v) { return pad2d(v[0], padding, static_cast<PadMode>(mode)); },
            {normal({2, 3, 4, 5}, dtype)}, few_ulp(dtype, 8));
      }
    }
  }
  expect_gradients_like_cpu(
      [](const auto& v) {
        return pad2d(v[0], {70, 1, 300, 5}, PadMode::replicate);
      },
      {normal({1, 1, 2, 3}, DType::f32)}, {2e-2, 1e-5});  // corners add 21 thousand numbers
  expect_gradients_like_cpu(
      [](const auto& v) {
        return pad2d(v[0], {1, 1, 1, 1});
      },
      {normal({0, 2, 3, 3}, DType::f32)}, {});
}

Tensor labels_below(std::int64_t n, std::int64_t k) {
  std::vector<std::int32_t> labels;
  for (std::int64_t i = 0; i < n; ++i) labels.push_back(static_cast<std::int32_t>((7 * i + 3) % k));
  return Tensor::from<std::int32_t>(labels, {n});
}

TEST_F(SoftmaxOnCuda, GivesTheLossItsGradientAndTheRightAnswers) {
  for (const DType dtype : kTypes) {
    for (const std::int64_t k : {1, 10, 31, 32, 33, 100, 1000, 1030}) {
      for (const std::int64_t n : {1, 9}) {
        SCOPED_TRACE(cat(n, "x", k, " ", name_of(dtype)));
        const Tensor x =
            elementwise(BinaryOp::mul, normal({n, k}, dtype, 4), Tensor::full({}, 10.0, dtype));
        expect_gradients_like_cpu(
            [](const auto& v) { return softmax_cross_entropy(v[0], v[1].value()); },
            {x, labels_below(n, k)}, few_ulp(dtype, 32));
        expect_like_cpu(
            [](const auto& t) {
              return std::vector<Tensor>{softmax(t[0]), argmax(t[0])};
            },
            {x}, few_ulp(dtype, 32));
        EXPECT_EQ(count_correct(x.to(testing::cuda()), labels_below(n, k).to(testing::cuda())),
                  count_correct(x, labels_below(n, k)));
      }
    }
  }
}

TEST_F(SoftmaxOnCuda, TakesTheFirstOfEqualsAndNaNBeforeAll) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const Tensor x = Tensor::from({1, 3, 3, nan, 9, nan, -inf, -inf, -inf}, {3, 3});
  EXPECT_EQ(testing::values_of<std::int32_t>(argmax(x.to(testing::cuda()))),
            testing::values_of<std::int32_t>(argmax(x)));
}

TEST_F(SoftmaxOnCuda, MakesTheLossNaNWhereALabelIsNoClass) {
  const Tensor x = normal({2, 4}, DType::f32).to(testing::cuda());
  for (const std::int32_t wrong : {-1, 4, 1 << 30}) {
    const Tensor labels = Tensor::from<std::int32_t>(std::vector<std::int32_t>{1, wrong}, {2});
    const Variable loss = softmax_cross_entropy(Variable(x), labels.to(testing::cuda()));
    EXPECT_TRUE(std::isnan(loss.value().item())) << wrong;
  }
}

}  // namespace
}  // namespace convscope
