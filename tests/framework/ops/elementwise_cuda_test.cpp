// SPDX-License-Identifier: Apache-2.0
// elementwise_cuda_test.cpp: element-wise operations on a GPU against the CPU.
#include <limits>

#include "framework/ops/accumulate.h"
#include "tests/support/cuda_like_cpu.h"

namespace convscope {
namespace {

using testing::expect_gradients_like_cpu;
using testing::expect_like_cpu;
using testing::few_ulp;
using testing::normal;
using ElementwiseOnCuda = testing::CudaTest;

constexpr DType kTypes[] = {DType::f32, DType::f64};
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

TEST_F(ElementwiseOnCuda, TakesEveryBroadcastOfTheCpu) {
  struct Case {
    Shape a, b;
  };
  const Case cases[] = {{{1}, {1}},
                        {{7}, {7}},
                        {{1027}, {1027}},
                        {{4, 8}, {8}},
                        {{3, 5}, {3, 1}},
                        {{2, 3, 4, 5}, {3, 1, 1}},
                        {{2, 4, 8, 8}, {4, 1, 1}},
                        {{5, 1, 4}, {1, 3, 4}},
                        {{6, 1}, {1, 7}},
                        {{}, {9, 4}},
                        {{0, 4}, {4}},
                        {{2, 1, 3, 1, 2}, {4, 1, 5, 1}}};
  for (const DType dtype : kTypes) {
    for (const Case& c : cases) {
      SCOPED_TRACE(cat(c.a, " ", c.b, " ", name_of(dtype)));
      expect_gradients_like_cpu([](const auto& v) { return (v[0] + v[1]) * v[0] - v[1]; },
                                {normal(c.a, dtype, 1), normal(c.b, dtype, 2)}, few_ulp(dtype, 64));
      expect_like_cpu(
          [](const auto& t) {
            return std::vector<Tensor>{elementwise(BinaryOp::div, t[0], t[1]),
                                       elementwise(BinaryOp::sub, t[1], t[0])};
          },
          {normal(c.a, dtype, 3), normal(c.b, dtype, 4)}, {});
    }
  }
}

TEST_F(ElementwiseOnCuda, HasTheActivationsOfTheCpuAndTheirSlopes) {
  for (const DType dtype : kTypes) {
    for (const std::int64_t n : {0, 1, 3, 4, 1021}) {
      SCOPED_TRACE(cat(n, " ", name_of(dtype)));
      // The CPU computes exp, tanh and sigmoid in f32 by the library's polynomials, whose errors
      // are a few ulp.
      const Tensor x = normal({n}, dtype, 5);
      const Tensor positive = testing::uniform({n}, 0.1f, 9.0f, dtype, 6);
      const auto bound = few_ulp(dtype, 32);
      expect_gradients_like_cpu([](const auto& v) { return exp(v[0]); }, {x}, bound);
      expect_gradients_like_cpu([](const auto& v) { return tanh(v[0]); }, {x}, bound);
      expect_gradients_like_cpu([](const auto& v) { return sigmoid(v[0]); }, {x}, bound);
      expect_gradients_like_cpu([](const auto& v) { return relu(v[0]); }, {x}, {});
      expect_gradients_like_cpu([](const auto& v) { return neg(v[0]); }, {x}, {});
      expect_gradients_like_cpu([](const auto& v) { return scale(v[0], 0.3); }, {x}, {});
      expect_gradients_like_cpu([](const auto& v) { return log(v[0]); }, {positive}, bound);
      expect_gradients_like_cpu([](const auto& v) { return sqrt(v[0]); }, {positive}, bound);
    }
  }
}

TEST_F(ElementwiseOnCuda, LetsNaNThroughRelu) {
  const Tensor x = Tensor::from({-1.0f, kNaN, 0.0f, -0.0f, 2.0f}, {5});
  expect_gradients_like_cpu([](const auto& v) { return relu(v[0]); }, {x}, {});
}

TEST_F(ElementwiseOnCuda, ReadsSlicesThatAreNotAligned) {
  for (const DType dtype : kTypes) {
    expect_like_cpu(
        [](const auto& t) {
          const Tensor a = t[0].slice_rows(1, 30);
          const Tensor sum = elementwise(BinaryOp::add, a, t[0].slice_rows(2, 30));
          const Tensor to = t[0].clone();
          accumulate(to.slice_rows(3, 30), sum);
          return std::vector<Tensor>{
              sum, elementwise(UnaryOp::relu, a), to,
              elementwise(BinaryOp::mul, a.reshape({10, 3}), t[0].slice_rows(5, 3))};
        },
        {normal({33}, dtype, 7)}, {});
  }
}

TEST_F(ElementwiseOnCuda, FillsAndConvertsTensorsWhereTheyLive) {
  const Device device = testing::cuda();
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto from = static_cast<DType>(i);
    SCOPED_TRACE(name_of(from));
    EXPECT_EQ(Tensor::full({5}, 3.0, from, device).at(4), 3.0);
    EXPECT_EQ(Tensor::full({1}, -7.25, from, device).item(), Tensor::full({1}, -7.25, from).item());
    const Tensor x =
        Tensor::from({-3.5f, 0.25f, 255.75f, 1e9f, -1e9f, 65504.0f, kNaN}, {7}).to(from);
    for (int k = 0; k < kDTypeCount; ++k) {
      const auto to = static_cast<DType>(k);
      SCOPED_TRACE(name_of(to));
      expect_like_cpu([to](const auto& t) { return std::vector<Tensor>{t[0].to(to)}; }, {x}, {});
    }
  }
  Tensor::empty({0}, DType::f32, device).fill(1.0);
  const Tensor zeros = Tensor::full({3}, 5.0, DType::f32, device);
  zeros.zero();
  EXPECT_EQ(testing::values_of<float>(zeros), std::vector<float>(3, 0.0f));
}

}  // namespace
}  // namespace convscope
