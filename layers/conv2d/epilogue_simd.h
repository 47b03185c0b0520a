// SPDX-License-Identifier: Apache-2.0
// epilogue_simd.h: the inner loop of epilogue.h, compiled for each instruction set.
#pragma once

#include <cstdint>

#include "framework/simd/cpu_isa.h"

namespace convscope {

// Computes v = y[i step + j] + residual[i step + j], then min(max(v, 0), most) when `relu`, and
// stores v in y, for i < rows and j < count; residual may be null.
struct EpilogueKernels {
  void (*apply)(float* y, const float* residual, bool relu, float most, std::int64_t rows,
                std::int64_t count, std::int64_t step) = nullptr;
};
extern CONVSCOPE_API IsaTable<EpilogueKernels> epilogue_kernels;

}  // namespace convscope
