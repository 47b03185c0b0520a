// SPDX-License-Identifier: Apache-2.0
// lsq_simd.h: the f32 loops of lsq.h over values that share one step size.
#pragma once

#include <cstdint>

#include "framework/simd/cpu_isa.h"

namespace convscope {

struct LsqKernels {
  // Computes y = s code(v), codes in [low, high].
  void (*forward)(const float* v, float s, float low, float high, float* y, std::int64_t n);
  // Computes dv, unless `dv` is null. Returns the sum of dy d(v_hat)/ds, not scaled by g.
  double (*backward)(const float* dy, const float* v, float s, float low, float high, float* dv,
                     std::int64_t n);
};
extern IsaTable<LsqKernels> lsq_kernels;

}  // namespace convscope
