// SPDX-License-Identifier: Apache-2.0
// bounded_relu_simd.cpp: plain loops that the compiler vectorises, once per instruction set. Both
// loops are memory-bound.
#include "framework/ops/bounded_relu/bounded_relu_simd.h"

#include "framework/simd/simd.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using std::int64_t;

// NaN is neither below 0 nor above the bound, so NaN stays NaN.
void forward(const float* __restrict x, float most, float* __restrict y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float above = x[i] <= 0.0f ? 0.0f : x[i];
    y[i] = above > most ? most : above;
  }
}

void gradient(const float* __restrict y, const float* __restrict dy, float most,
              float* __restrict dx, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float above = y[i] <= 0.0f ? 0.0f : dy[i];
    dx[i] = y[i] >= most ? 0.0f : above;
  }
}

}  // namespace
constexpr BoundedReluKernels kBoundedRelu{.forward = forward, .gradient = gradient};
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(bounded_relu_kernels, convscope::CONVSCOPE_ISA::kBoundedRelu)
