// SPDX-License-Identifier: Apache-2.0
// peak_simd.cpp: the loops that measure the arithmetic and bandwidth peaks.
//
// On current cores an FMA takes 4 cycles and two start in each cycle, so at least 8 independent
// chains are needed to keep the units busy. The loop has 12 chains if there are 16 registers, and
// 24 if there are 32, so that there is some slack. The scalar copy of this file uses the vectors
// of vector4, as the compiler does for plain loops.
#include "experiments/bench/peaks/peak_kernels.h"
#include "framework/simd/lane_pixels.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

constexpr int kChains = kRegisters == 32 ? 24 : 12;

float multiply_add(std::int64_t rounds) {
  const Wide shrink = wide::broadcast(0.999f);  // the chains tend to 1: no overflow, no denormals
  const Wide grow = wide::broadcast(0.001f);
  Wide chain[kChains];
#pragma GCC unroll 32
  for (int i = 0; i < kChains; ++i) chain[i] = wide::broadcast(static_cast<float>(i));
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 32
    for (int i = 0; i < kChains; ++i) chain[i] = fma(chain[i], shrink, grow);
  }
  Wide all = wide::broadcast(0.0f);
#pragma GCC unroll 32
  for (int i = 0; i < kChains; ++i) all = all + chain[i];
  return sum(all);
}

constexpr int kStreams = 8;
static_assert(kPeakBlock % (kStreams * kWide) == 0);

float read(const float* from, std::int64_t count) {
  Wide sums[kStreams];
#pragma GCC unroll 8
  for (int i = 0; i < kStreams; ++i) sums[i] = wide::broadcast(0.0f);
  for (std::int64_t at = 0; at < count; at += kStreams * kWide) {
#pragma GCC unroll 8
    for (int i = 0; i < kStreams; ++i) sums[i] = sums[i] + wide::load(from + at + i * kWide);
  }
  Wide all = wide::broadcast(0.0f);
#pragma GCC unroll 8
  for (int i = 0; i < kStreams; ++i) all = all + sums[i];
  return sum(all);
}

void copy(float* to, const float* from, std::int64_t count) {
  for (std::int64_t at = 0; at < count; at += kStreams * kWide) {
#pragma GCC unroll 8
    for (int i = 0; i < kStreams; ++i) {
      store(to + at + i * kWide, wide::load(from + at + i * kWide));
    }
    asm volatile("" ::: "memory");  // or the compiler calls memcpy, which may bypass the caches
  }
}

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(peak_kernels, (PeakKernels{.multiply_add = CONVSCOPE_ISA::multiply_add,
                                                  .flops_per_round = 2 * CONVSCOPE_ISA::kChains *
                                                                     CONVSCOPE_ISA::kWide,
                                                  .read = CONVSCOPE_ISA::read,
                                                  .copy = CONVSCOPE_ISA::copy}))
