// SPDX-License-Identifier: Apache-2.0
// reduce_cuda_test.cpp: compares sums and maxima over axes on a GPU with the CPU.
#include <limits>

#include "tests/support/cuda_like_cpu.h"

namespace convscope {
namespace {

using testing::expect_gradients_like_cpu;
using testing::few_ulp;
using testing::normal;
using ReduceOnCuda = testing::CudaTest;

constexpr DType kTypes[] = {DType::f32, DType::f64};

// The GPU sums in double and rounds once. The CPU adds in another order, so the bound is 2^-23
// times the sum over magnitudes. A sum has up to a few hundred terms of size 1 over a short axis,
// and 70 thousand over the long axis.
testing::Bound bound_of(DType dtype, std::int64_t count) {
  const double eps = dtype == DType::f64 ? 0x1p-50 : 0x1p-23;
  return {eps * static_cast<double>(count), eps * 4};
}

TEST_F(ReduceOnCuda, SumsOverEverySetOfAxes) {
  const Shape shapes[] = {{5},          {3, 7},     {4, 3, 8},         {2, 3, 4, 5},
                          {3, 1, 5, 2}, {9, 33, 4}, {2, 3, 2, 2, 3, 2}};
  for (const DType dtype : kTypes) {
    for (const Shape& shape : shapes) {
      for (unsigned mask = 1; mask < 1u << shape.rank(); ++mask) {
        SCOPED_TRACE(cat(shape, " mask ", mask, " ", name_of(dtype)));
        testing::expect_like_cpu(
            [&](const auto& t) {
              Shape out;
              for (int axis = 0; axis < shape.rank(); ++axis) {
                if ((mask >> axis & 1u) == 0) out.push_back(shape[axis]);
              }
              const Tensor y = Tensor::empty(out, dtype, t[0].device());
              sum_kernel.get(t[0].device())(t[0], mask, y);
              return std::vector<Tensor>{y};
            },
            {normal(shape, dtype, 1)}, bound_of(dtype, 16));
      }
    }
  }
}

TEST_F(ReduceOnCuda, SumsLongRowsAndColumnsInPieces) {
  for (const DType dtype : kTypes) {
    const auto bound = bound_of(dtype, 300);  // sqrt(70000): the signs are random
    expect_gradients_like_cpu([](const auto& v) { return sum(v[0]); }, {normal({70001}, dtype, 2)},
                              bound);
    expect_gradients_like_cpu([](const auto& v) { return sum(v[0], {1}); },
                              {normal({2, 35000}, dtype, 3)}, bound);
    expect_gradients_like_cpu([](const auto& v) { return sum(v[0], {0}); },
                              {normal({2100, 33}, dtype, 4)}, bound);
    expect_gradients_like_cpu(
        [](const auto& v) {
          return mean(v[0], {0, 2, 3}, true);
        },
        {normal({3, 2, 8, 12}, dtype, 5)}, bound);
  }
}

TEST_F(ReduceOnCuda, TakesAnAxisOfSizeZero) {
  expect_gradients_like_cpu([](const auto& v) { return sum(v[0], {0}); },
                            {normal({0, 3}, DType::f32)}, {});
  expect_gradients_like_cpu([](const auto& v) { return sum(v[0], {1}); },
                            {normal({0, 3}, DType::f32)}, {});
}

TEST_F(ReduceOnCuda, FindsTheFirstMaximumAndTheFirstNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const DType dtype : kTypes) {
    expect_gradients_like_cpu([](const auto& v) { return max(v[0]); }, {normal({3001}, dtype)}, {});
    expect_gradients_like_cpu(
        [](const auto& v) {
          return max(v[0], {0, 2});
        },
        {normal({4, 3, 50}, dtype)}, {});
    expect_gradients_like_cpu([](const auto& v) { return max(v[0], {1}); },
                              {Tensor::from({1, 5, 5, 2, nan, nan, -3, -3, -3}, {3, 3}).to(dtype)},
                              {});
  }
}

}  // namespace
}  // namespace convscope
