// SPDX-License-Identifier: Apache-2.0
// bounded_relu_cuda_test.cpp: tests the ReLU with an upper bound on a GPU, where it consists of
// several kernels. Results must have the same bits as on the CPU.
#include <limits>

#include "framework/ops/bounded_relu/bounded_relu.h"
#include "tests/support/cuda_like_cpu.h"

namespace convscope {
namespace {

using BoundedReluOnCuda = testing::CudaTest;

TEST_F(BoundedReluOnCuda, HasTheBitsOfTheCpu) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const std::int64_t n : {0, 1, 5, 4096, 100003}) {
      SCOPED_TRACE(cat(n, " ", name_of(dtype)));
      testing::expect_gradients_like_cpu([](const auto& v) { return relu6(v[0]); },
                                         {testing::uniform({n}, -10, 20, dtype)}, {});
    }
    constexpr float kInf = std::numeric_limits<float>::infinity();
    const Tensor corners =
        Tensor::from({-kInf, -0.0f, 0, 1e-30f, 6, 6 - 0x1p-21f, 6 + 0x1p-21f, 1e30f, kInf}, {9});
    testing::expect_gradients_like_cpu([](const auto& v) { return relu6(v[0]); },
                                       {corners.to(dtype)}, {});
  }
}

}  // namespace
}  // namespace convscope
