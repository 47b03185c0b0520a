// SPDX-License-Identifier: Apache-2.0
// lsq_simd.cpp: learned step size quantisation of contiguous values that share a step size.
//
// v_hat, dv and d(v_hat)/ds are computed by single divisions, comparisons, sums and products, none
// of which a compiler can fuse with another. So all instruction sets give the same bits. The
// product of dy and d(v_hat)/ds is exact in double (24 + 24 bits), so a fused multiply-add gives
// the same sum. kChains independent sums are added in one fixed order.
//
// The forward loop is plain, and the compiler vectorises it. GCC 12 does not vectorise the backward
// loop, because each of its two comparisons becomes a branch. So AVX2 and AVX-512 have explicit
// versions. The plain backward loop next to them is the definition, and processes the remaining
// values.
#include "quant/lsq_simd.h"

#include "framework/simd/lane_sums.h"
#include "framework/simd/simd.h"
#include "quant/integer_grid.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using std::int64_t;

constexpr int kChains = 32;  // 8 registers of 4 doubles, or 4 of 8: an add takes 4 cycles

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

// Processes kChains values at a time while so many are left; returns the number of processed
// values.
template <bool kWantsInput>
CONVSCOPE_INLINE int64_t backward_rounds(const float* __restrict dy, const float* __restrict v,
                                         float s, float low, float high, float* __restrict dv,
                                         int64_t n, double* part) {
  constexpr int kVectors = kChains / kLanes;
  const Vec step = broadcast(s), lowest = broadcast(low), highest = broadcast(high);
  const Vec shift = broadcast(12582912.0f);  // round_half_even() of integer_grid.h
  DoubleSums sums[kVectors];
  int64_t i = 0;
  for (; i + kChains <= n; i += kChains) {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) {
      const int64_t at = i + j * kLanes;
      const Vec u = load(v + at) / step;
      const Vec code = min(highest, max(lowest, u)) + shift - shift;  // NaN passes
      const Mask above = greater(u, lowest), below = greater(highest, u);
      if (kWantsInput) store(dv + at, keep(above, keep(below, load(dy + at))));
      add_products(dy + at, code - keep(above, keep(below, u)), sums[j]);
    }
  }
#pragma GCC unroll 8
  for (int j = 0; j < kVectors; ++j) store_sums(part + j * kLanes, sums[j]);
  return i;
}

template <bool kWantsInput>
double backward_loop(const float* __restrict dy, const float* __restrict v, float s, float low,
                     float high, float* __restrict dv, int64_t n) {
  double part[kChains] = {};
  int64_t i = backward_rounds<kWantsInput>(dy, v, s, low, high, dv, n, part);
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
