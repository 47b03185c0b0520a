// SPDX-License-Identifier: Apache-2.0
// bounded_relu_simd.h: the f32 loops of bounded_relu.h, one table per instruction set.
#pragma once

#include <cstdint>

#include "framework/simd/cpu_isa.h"

namespace convscope {

struct BoundedReluKernels {
  void (*forward)(const float* x, float most, float* y, std::int64_t n) = nullptr;
  void (*gradient)(const float* y, const float* dy, float most, float* dx,
                   std::int64_t n) = nullptr;
};
extern IsaTable<BoundedReluKernels> bounded_relu_kernels;

}  // namespace convscope
