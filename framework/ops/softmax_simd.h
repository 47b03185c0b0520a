// SPDX-License-Identifier: Apache-2.0
// softmax_simd.h: the f32 loops of softmax_cross_entropy.h, one table per instruction set.
#pragma once

#include <cstdint>

#include "framework/simd/cpu_isa.h"

namespace convscope {

struct SoftmaxKernels {
  // Computes y = softmax(x) for `rows` rows of k classes, and the loss of each row unless `losses`
  // is null. Labels are in [0, k).
  void (*forward)(const float* x, const std::int32_t* labels, std::int64_t rows, std::int64_t k,
                  float* y, float* losses);
  // dx = (y - onehot(labels)) factor
  void (*gradient)(const float* y, const std::int32_t* labels, std::int64_t rows, std::int64_t k,
                   float factor, float* dx);
};
extern IsaTable<SoftmaxKernels> softmax_kernels;

}  // namespace convscope
