// SPDX-License-Identifier: Apache-2.0
// ceiling_kernels.h: the loops that measure a machine's peaks, one table for each instruction set.
#pragma once

#include <cstdint>

#include "framework/simd/cpu_isa.h"

namespace convscope {

struct CeilingKernels {
  // Independent chains of acc = acc * a + b in registers; the result must be used.
  float (*multiply_add)(std::int64_t rounds) = nullptr;
  std::int64_t flops_per_round = 0;
  // `count` floats, a multiple of kCeilingBlock, 64-byte aligned.
  float (*read)(const float* from, std::int64_t count) = nullptr;  // the sum, which must be used
  void (*copy)(float* to, const float* from, std::int64_t count) = nullptr;
};
inline constexpr std::int64_t kCeilingBlock = 128;
extern IsaTable<CeilingKernels> ceiling_kernels;

// Int8 products, with VNNI and without it.
struct ByteCeilingKernels {
  // Independent chains of sums += four products of u8 and i8 in each lane.
  void (*multiply_add)(std::int64_t rounds) = nullptr;
  std::int64_t flops_per_round = 0;
};
extern IsaTable<ByteCeilingKernels> byte_ceiling_kernels;

}  // namespace convscope
