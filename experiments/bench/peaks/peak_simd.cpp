// SPDX-License-Identifier: Apache-2.0
// peak_simd.cpp: the loops that measure the arithmetic and bandwidth peaks.
//
// On current cores an FMA takes 4 cycles and two start in each cycle, so at least 8 independent
// chains are needed to keep the units busy. The loop has 12 chains if there are 16 registers, and
// 24 if there are 32, so that there is some slack. The scalar copy of this file has no FMA and uses
// SSE2 vectors, as the compiler does for plain loops.
#include "experiments/bench/peaks/peak_kernels.h"
#include "framework/simd/simd.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

#if defined(CONVSCOPE_ISA_IS_SCALAR)
using Wide = float __attribute__((vector_size(16), aligned(4), may_alias));
constexpr int kWideLanes = 4;
CONVSCOPE_INLINE Wide wide(float x) { return Wide{x, x, x, x}; }
CONVSCOPE_INLINE Wide wide_at(const float* p) { return *reinterpret_cast<const Wide*>(p); }
CONVSCOPE_INLINE void put(float* p, Wide a) { *reinterpret_cast<Wide*>(p) = a; }
CONVSCOPE_INLINE Wide multiply_add_of(Wide a, Wide b, Wide c) { return a * b + c; }
CONVSCOPE_INLINE float total(Wide a) { return a[0] + a[1] + a[2] + a[3]; }
#else
using Wide = Vec;
constexpr int kWideLanes = kLanes;
CONVSCOPE_INLINE Wide wide(float x) { return broadcast(x); }
CONVSCOPE_INLINE Wide wide_at(const float* p) { return load(p); }
CONVSCOPE_INLINE void put(float* p, Wide a) { store(p, a); }
CONVSCOPE_INLINE Wide multiply_add_of(Wide a, Wide b, Wide c) { return fma(a, b, c); }
CONVSCOPE_INLINE float total(Wide a) { return sum(a); }
#endif

constexpr int kChains = kRegisters == 32 ? 24 : 12;

float multiply_add(std::int64_t rounds) {
  const Wide shrink = wide(0.999f);  // the chains tend to 1: no overflow, no denormals
  const Wide grow = wide(0.001f);
  Wide chain[kChains];
#pragma GCC unroll 32
  for (int i = 0; i < kChains; ++i) chain[i] = wide(static_cast<float>(i));
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 32
    for (int i = 0; i < kChains; ++i) chain[i] = multiply_add_of(chain[i], shrink, grow);
  }
  Wide all = wide(0.0f);
#pragma GCC unroll 32
  for (int i = 0; i < kChains; ++i) all = all + chain[i];
  return total(all);
}

constexpr int kStreams = 8;
static_assert(kPeakBlock % (kStreams * kWideLanes) == 0);

float read(const float* from, std::int64_t count) {
  Wide sums[kStreams];
#pragma GCC unroll 8
  for (int i = 0; i < kStreams; ++i) sums[i] = wide(0.0f);
  for (std::int64_t at = 0; at < count; at += kStreams * kWideLanes) {
#pragma GCC unroll 8
    for (int i = 0; i < kStreams; ++i) sums[i] = sums[i] + wide_at(from + at + i * kWideLanes);
  }
  Wide all = wide(0.0f);
#pragma GCC unroll 8
  for (int i = 0; i < kStreams; ++i) all = all + sums[i];
  return total(all);
}

void copy(float* to, const float* from, std::int64_t count) {
  for (std::int64_t at = 0; at < count; at += kStreams * kWideLanes) {
#pragma GCC unroll 8
    for (int i = 0; i < kStreams; ++i) {
      put(to + at + i * kWideLanes, wide_at(from + at + i * kWideLanes));
    }
    asm volatile("" ::: "memory");  // or the compiler calls memcpy, which may bypass the caches
  }
}

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(peak_kernels, (PeakKernels{.multiply_add = CONVSCOPE_ISA::multiply_add,
                                                  .flops_per_round = 2 * CONVSCOPE_ISA::kChains *
                                                                     CONVSCOPE_ISA::kWideLanes,
                                                  .read = CONVSCOPE_ISA::read,
                                                  .copy = CONVSCOPE_ISA::copy}))
