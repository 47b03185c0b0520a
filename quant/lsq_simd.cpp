// SPDX-License-Identifier: Apache-2.0
// lsq_simd.cpp: learned step size quantisation of one run of values that share a step.
//
// The loops are plain C++ that the compiler turns into vectors. Every operation on the way to
// v_hat, dv and the slope of the step is a division, comparison, sum or product that stands alone,
// so no compiler may fuse two of them, and all instruction sets give the same bits. The slope times
// dy is exact in double (24 + 24 bits), and kChains sums run side by side in one fixed order.
#include "quant/lsq_simd.h"

#include "framework/simd/simd.h"
#include "quant/integer_grid.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using std::int64_t;

constexpr int kChains = 32;  // 4 registers of 8 doubles: an add takes 4 cycles

void forward(const float* __restrict v, float s, float low, float high, float* __restrict y,
             int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = code_of(v[i], s, low, high) * s;
}

// d(v_hat)/ds and d(v_hat)/dv at one value.
struct Slopes {
  float step;
  bool inside;
};
CONVSCOPE_INLINE Slopes slopes_at(float v, float s, float low, float high) {
  const float u = v / s;
  const float code = round_half_even(clip_to(u, low, high));
  const bool inside = (u > low) & (u < high);
  return {code - (inside ? u : 0.0f), inside};  // outside, the code is the bound
}

template <bool kWantsInput>
double backward_loop(const float* __restrict dy, const float* __restrict v, float s, float low,
                     float high, float* __restrict dv, int64_t n) {
  double part[kChains] = {};
  int64_t i = 0;
  for (; i + kChains <= n; i += kChains) {
    float slope[kChains];
    for (int c = 0; c < kChains; ++c) {
      const Slopes at = slopes_at(v[i + c], s, low, high);
      slope[c] = at.step;
      if (kWantsInput) dv[i + c] = at.inside ? dy[i + c] : 0.0f;
    }
    for (int c = 0; c < kChains; ++c) {
      part[c] += static_cast<double>(dy[i + c]) * static_cast<double>(slope[c]);
    }
  }
  double total = 0;
  for (int c = 0; c < kChains; ++c) total += part[c];
  for (; i < n; ++i) {
    const Slopes at = slopes_at(v[i], s, low, high);
    if (kWantsInput) dv[i] = at.inside ? dy[i] : 0.0f;
    total += static_cast<double>(dy[i]) * static_cast<double>(at.step);
  }
  return total;
}

double backward(const float* dy, const float* v, float s, float low, float high, float* dv,
                int64_t n) {
  if (dv == nullptr) return backward_loop<false>(dy, v, s, low, high, dv, n);
  return backward_loop<true>(dy, v, s, low, high, dv, n);
}

}  // namespace
constexpr LsqKernels kLsq{.forward = forward, .backward = backward};
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(lsq_kernels, convscope::CONVSCOPE_ISA::kLsq)
