// SPDX-License-Identifier: Apache-2.0
// mma.cuh: matrix products of one warp on the tensor cores with operands in registers (sm_80), and
// loads of 8 x 8 tiles of 16-bit elements from shared memory into these registers. Two files
// include this file: matrix_tile.cuh (also for byte_tile.cuh and gathered_tile.cuh), whose
// emulation works on whole tiles, and warp_mma.cuh, which has an emulated version of each function.
//
//   lane l of a warp holds of A [16 x 16]: rows l/4 and l/4 + 8, k = 2 (l%4) + {0, 1, 8, 9}
//                          of B [16 x 8]:  column l/4, the same k
//                          of D [16 x 8]:  rows l/4 and l/4 + 8, columns 2 (l%4) + {0, 1}
// Source: PTX ISA, "Warp level matrix instructions"
// Read next  mma_bytes.cuh: bytes
#pragma once

#include "framework/dtype.h"

namespace convscope {

// Loads four 8 x 8 tiles. Lanes 8i .. 8i+7 pass the addresses of the eight rows (16 bytes) of tile
// i. With kTransposed, rows in shared memory become columns in the registers.
template <bool kTransposed>
__device__ inline void load_matrices(unsigned (&tiles)[4], const void* row) {
  const auto from = static_cast<unsigned>(__cvta_generic_to_shared(row));
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(tiles[0]), "=r"(tiles[1]), "=r"(tiles[2]), "=r"(tiles[3])
                 : "r"(from)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(tiles[0]), "=r"(tiles[1]), "=r"(tiles[2]), "=r"(tiles[3])
                 : "r"(from)
                 : "memory");
  }
}

// Computes d[0..3] += A B with K = 16.
template <class Half>
__device__ inline void mma(float* d, const unsigned (&a)[4], unsigned b0, unsigned b1) {
  if constexpr (dtype_of<Half> == DType::bf16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

}  // namespace convscope
