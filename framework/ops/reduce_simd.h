// SPDX-License-Identifier: Apache-2.0
// reduce_simd.h: the f32 sums of reduce.h, one table per instruction set.
#pragma once

#include <cstdint>

#include "framework/simd/cpu_isa.h"

namespace convscope {

struct ReduceKernels {
  // x[0] + ... + x[n-1]
  double (*row_sum)(const float* x, std::int64_t n);
  // y[j] = (add ? y[j] : 0) + sum over i < rows of x[i * stride + j], j < columns
  void (*column_sum)(const float* x, std::int64_t rows, std::int64_t stride, std::int64_t columns,
                     float* y, bool add);
  // total[c] += sum over i < rows of x[16 i + c] - shift[c], c < 16: the 16 channels of a pixel
  void (*sums_of_16)(const float* x, std::int64_t rows, const float* shift, double* total);
};
extern IsaTable<ReduceKernels> reduce_kernels;

}  // namespace convscope
