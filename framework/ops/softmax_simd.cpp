// SPDX-License-Identifier: Apache-2.0
// softmax_simd.cpp: softmax and cross-entropy of rows; see softmax_cross_entropy.h.
//
// Numerics: with m the largest entry, the loss is log(sum exp(x - m)) - (x[label] - m). The sum is
// between 1 and K, so neither overflow nor the log of 0 can happen for finite entries.
#include "framework/ops/softmax_simd.h"

#include "framework/simd/simd.h"
#include "framework/simd/simd_math.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using std::int32_t;
using std::int64_t;

float largest(const float* x, int64_t k) {
  float m = x[0];
  for (int64_t j = 1; j < k; ++j) m = x[j] > m || x[j] != x[j] ? x[j] : m;
  return m;
}

void forward(const float* x, const int32_t* labels, int64_t rows, int64_t k, float* y,
             float* losses) {
  for (int64_t n = 0; n < rows; ++n, x += k, y += k) {
    const float m = largest(x, k);
    for (int64_t j = 0; j < k; ++j) y[j] = exp_of(x[j] - m);
    double total = 0;  // double is cheap for K classes, and decides the accuracy
    for (int64_t j = 0; j < k; ++j) total += static_cast<double>(y[j]);
    const auto inverse = static_cast<float>(1 / total);
    for (int64_t j = 0; j < k; ++j) y[j] *= inverse;
    if (losses != nullptr) {
      losses[n] = static_cast<float>(__builtin_log(total) -
                                     (static_cast<double>(x[labels[n]]) - static_cast<double>(m)));
    }
  }
}

void gradient(const float* y, const int32_t* labels, int64_t rows, int64_t k, float factor,
              float* dx) {
  for (int64_t n = 0; n < rows; ++n, y += k, dx += k) {
    for (int64_t j = 0; j < k; ++j) dx[j] = y[j] * factor;
    dx[labels[n]] = (y[labels[n]] - 1.0f) * factor;
  }
}

}  // namespace
constexpr SoftmaxKernels kSoftmax{.forward = forward, .gradient = gradient};
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(softmax_kernels, convscope::CONVSCOPE_ISA::kSoftmax)
