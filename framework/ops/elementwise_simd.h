// SPDX-License-Identifier: Apache-2.0
// elementwise_simd.h: the f32 loops of elementwise.h, one table per instruction set.
#pragma once

#include <cstdint>

#include "framework/simd/cpu_isa.h"

namespace convscope {

// The operand that is constant along the loop: only its first element is used.
enum class Repeat { none, a, b, both };

struct ElementwiseKernels {
  // Indexed by BinaryOp, UnaryOp, GradientOp.
  void (*binary[4])(const float* a, const float* b, Repeat repeat, float* y, std::int64_t n);
  void (*unary[7])(const float* x, float* y, std::int64_t n);
  void (*gradient[4])(const float* saved, const float* dy, float* dx, std::int64_t n);
  void (*scale)(float factor, const float* x, float* y, std::int64_t n);
  void (*add_into)(const float* from, float* to, std::int64_t n);
};
extern IsaTable<ElementwiseKernels> elementwise_kernels;

}  // namespace convscope
