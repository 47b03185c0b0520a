// SPDX-License-Identifier: Apache-2.0
// mma_tf32.cuh: a matrix product of one warp on the tensor cores (sm_80) with f32 operands in
// registers. They are rounded to TF32, or split into a high and a low part that together keep 22
// bits.
//
//   lane l of a warp holds of A [16 x 8]: rows l/4 and l/4 + 8, k = l%4 and l%4 + 4
//                          of B [8 x 8]:  column l/4, the same k
//                          of D [16 x 8]: rows l/4 and l/4 + 8, columns 2 (l%4) + {0, 1}
//
// TF32 keeps 10 bits after the leading one; tensor cores ignore the other bits of a register.
// Source: PTX ISA, "Warp level matrix instructions"; H. Ootomo, R. Yokota 2022: Recovering single
// precision accuracy from Tensor Cores, arXiv 2203.03341
// Read next  mma.cuh: fp16/bf16 and bytes
#pragma once

#include "framework/cuda/launch.cuh"

#if defined(CONVSCOPE_CUDA_EMULATED)
#include "framework/cuda/emulation/products.h"
#endif

namespace convscope {

// Rounds to the nearest TF32, ties away from zero.
__device__ inline float rounded_tf32(float v) {
  return __uint_as_float((__float_as_uint(v) + 0x1000u) & 0xffffe000u);
}

// Rounds to the nearest TF32, ties away from zero. NaN stays NaN.
__device__ inline float to_tf32(float v) { return v == v ? rounded_tf32(v) : v; }

// Computes d += A B of one warp. d[0] and d[1] belong to row l/4, and d[2] and d[3] belong to row
// l/4 + 8. a holds rows l/4 and l/4 + 8 for k = l%4, then the same rows for k = l%4 + 4.
__device__ inline void mma_tf32(float (&d)[4], const float (&a)[4], float b0, float b1) {
#if defined(CONVSCOPE_CUDA_EMULATED)
  struct Operands {
    float a[4], b[2];
  };
  struct Sums {
    float d[4];
  };
  const Operands mine{{a[0], a[1], a[2], a[3]}, {b0, b1}};
  const Sums sums = emulation::warp_collective<Sums>(
      "mma_tf32", mine,
      [](const emulation::Lanes<Operands>& in, emulation::Lanes<Sums>& out) {
        const auto cut = [](float v) { return __uint_as_float(__float_as_uint(v) & 0xffffe000u); };
        emulation::WarpFactors<float, 8> factors;
        for (unsigned lane = 0; lane < 32; ++lane) {
          const unsigned line = lane / 4, k = lane % 4;
          for (unsigned i = 0; i < 4; ++i) {
            factors.rows[line + i % 2 * 8][k + i / 2 * 4] = cut(in[lane].a[i]);
          }
          for (unsigned i = 0; i < 2; ++i) factors.columns[k + i * 4][line] = cut(in[lane].b[i]);
        }
        factors.multiply(out);
      },
      kAllLanes);
  for (int i = 0; i < 4; ++i) d[i] += sums.d[i];
#else
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
        "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b0)), "r"(__float_as_uint(b1)));
#endif
}

// Splits v into two TF32 operands. high + low, as tensor cores read them, differs from v by at most
// 2^-21 |v|. high is rounded, so low has either sign, and truncating low in the tensor cores causes
// no bias. For an infinity, low is NaN.
struct HighLow {
  float high, low;
};
__device__ inline HighLow high_low(float v) {
  const float high = rounded_tf32(v);
  return {high, v - high};
}

}  // namespace convscope
