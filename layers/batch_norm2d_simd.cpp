// SPDX-License-Identifier: Apache-2.0
// batch_norm2d_simd.cpp: sums over one image plane in double, kChains of them side by side so that
// the compiler can use whole registers, and the two passes that write.
#include "layers/batch_norm2d_simd.h"

#include "framework/simd.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using std::int64_t;

constexpr int kChains = 32;  // 4 registers of 8 doubles: an add takes 4 cycles

// sum over i of term(i), the chains added in a fixed order.
template <class Term>
CONVSCOPE_INLINE double sum_of(int64_t n, const Term& term) {
  double part[kChains] = {};
  int64_t i = 0;
  for (; i + kChains <= n; i += kChains) {
    for (int c = 0; c < kChains; ++c) part[c] += term(i + c);
  }
  double total = 0;
  for (int c = 0; c < kChains; ++c) total += part[c];
  for (; i < n; ++i) total += term(i);
  return total;
}

double sum(const float* x, int64_t n) {
  return sum_of(n, [=](int64_t i) { return static_cast<double>(x[i]); });
}

double square_sum(const float* x, double mean, int64_t n) {
  return sum_of(n, [=](int64_t i) {
    const double d = static_cast<double>(x[i]) - mean;
    return d * d;
  });
}

void gradient_sums(const float* dy, const float* x, double mean, int64_t n, double* sum_dy,
                   double* sum_dy_x) {
  *sum_dy = sum(dy, n);
  *sum_dy_x = sum_of(n, [=](int64_t i) {
    return static_cast<double>(dy[i]) * (static_cast<double>(x[i]) - mean);
  });
}

void apply(const float* __restrict x, float factor, float shift, float* __restrict y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * factor + shift;
}

void gradient(const float* __restrict dy, const float* __restrict x, float mean, float a, float b,
              float d, float* __restrict dx, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dx[i] = a * dy[i] + (b * (x[i] - mean) + d);
}

}  // namespace
constexpr BatchNormKernels kBatchNorm{.sum = sum,
                                      .square_sum = square_sum,
                                      .gradient_sums = gradient_sums,
                                      .apply = apply,
                                      .gradient = gradient};
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(batch_norm_kernels, convscope::CONVSCOPE_ISA::kBatchNorm)
