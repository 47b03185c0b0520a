// SPDX-License-Identifier: Apache-2.0
// peak_kernels.h: the loops that measure a machine's peaks, one table for each instruction set.
#pragma once

#include <cstdint>

#include "framework/simd/cpu_isa.h"

namespace convscope {

struct PeakKernels {
  // Runs independent chains of acc = acc * a + b in registers; the caller must use the result.
  float (*multiply_add)(std::int64_t rounds) = nullptr;
  std::int64_t flops_per_round = 0;
  // `count` is a multiple of kPeakBlock; pointers are 64-byte aligned. read() returns the sum of
  // the floats, which the caller must use.
  float (*read)(const float* from, std::int64_t count) = nullptr;
  void (*copy)(float* to, const float* from, std::int64_t count) = nullptr;
};
inline constexpr std::int64_t kPeakBlock = 128;
extern IsaTable<PeakKernels> peak_kernels;

// Int8 products, with VNNI and without it.
struct BytePeakKernels {
  // Runs independent chains of accumulators. Each step adds four products of u8 and i8 to each i32
  // lane.
  void (*multiply_add)(std::int64_t rounds) = nullptr;
  std::int64_t flops_per_round = 0;
};
extern IsaTable<BytePeakKernels> byte_peak_kernels;

}  // namespace convscope
