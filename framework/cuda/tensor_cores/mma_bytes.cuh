// SPDX-License-Identifier: Apache-2.0
// mma_bytes.cuh: an int8 matrix product of one warp on the tensor cores (sm_80), with operands in
// registers and exact 32-bit accumulators.
//
//   lane l of a warp holds of A [16 x 32]: rows l/4 and l/4 + 8, k = 4 (l%4) + {0, 1, 2, 3} and
//                                          16 more: a register has four k of a row
//                          of B [32 x 8]:  column l/4, the same k
//                          of D [16 x 8]:  rows l/4 and l/4 + 8, columns 2 (l%4) + {0, 1}
//
// Source: PTX ISA, "Warp level matrix instructions"
// Read next  mma.cuh: fp16/bf16; mma_tf32.cuh
#pragma once

#include "framework/cuda/launch.cuh"

#if defined(CONVSCOPE_CUDA_EMULATED)
#include "framework/cuda/emulation/products.h"
#endif

namespace convscope {

// Computes d += A B of one warp. A is signed or unsigned, B is signed. In lane l, d[0] and d[1]
// belong to row l/4, and d[2] and d[3] belong to row l/4 + 8. Each element of `a` holds four
// adjacent bytes along K: a[0] of row l/4, a[1] of row l/4 + 8, and a[2] and a[3] of the same rows
// 16 bytes later.
template <bool kSigned>
__device__ inline void mma_bytes(int* d, const unsigned (&a)[4], unsigned b0, unsigned b1) {
#if defined(CONVSCOPE_CUDA_EMULATED)
  struct Operands {
    unsigned a[4], b[2];
  };
  struct Sums {
    int d[4];
  };
  const Operands mine{{a[0], a[1], a[2], a[3]}, {b0, b1}};
  const Sums sums = emulation::warp_collective<Sums>(
      "mma_bytes", mine,
      [](const emulation::Lanes<Operands>& in, emulation::Lanes<Sums>& out) {
        emulation::WarpFactors<int, 32> factors;
        for (unsigned lane = 0; lane < 32; ++lane) {
          const unsigned line = lane / 4;
          for (unsigned byte = 0; byte < 4; ++byte) {
            const unsigned k = lane % 4 * 4 + byte;
            for (unsigned i = 0; i < 4; ++i) {
              const unsigned x = in[lane].a[i] >> 8 * byte & 0xffu;
              factors.rows[line + i % 2 * 8][k + i / 2 * 16] =
                  kSigned ? static_cast<signed char>(x) : static_cast<int>(x);
            }
            for (unsigned i = 0; i < 2; ++i) {
              const unsigned w = in[lane].b[i] >> 8 * byte & 0xffu;
              factors.columns[k + i * 16][line] = static_cast<signed char>(w);
            }
          }
        }
        factors.multiply(out);
      },
      kAllLanes);
  for (int i = 0; i < 4; ++i) d[i] += sums.d[i];
#else
  if constexpr (kSigned) {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
#endif
}

}  // namespace convscope
