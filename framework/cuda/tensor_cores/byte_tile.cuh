// SPDX-License-Identifier: Apache-2.0
// byte_tile.cuh: D [64 x N] += A [64 x 128] B [128 x N] by one warp group (128 threads) on the
// tensor cores: A is u8 or i8, B is i8, D has exact 32-bit accumulators. It is the int8 version of
// matrix_tile.cuh, with the same swizzled rows of 128 bytes (K-major), the same layout of
// accumulators in registers, and the same order of begin(), multiply(), commit() and wait().
//
// The tile product uses wgmma on sm_90a, ldmatrix and mma.sync on every other GPU from sm_80 on,
// and plain loops over the same bytes in the emulation.
#pragma once

#include "framework/cuda/tensor_cores/matrix_tile.cuh"
#include "framework/cuda/tensor_cores/mma_bytes.cuh"

#if defined(CONVSCOPE_WGMMA)
#include "framework/cuda/tensor_cores/wgmma_bytes.cuh"
#endif

namespace convscope::byte_tile {

inline constexpr int kDepth = kTileRowBytes;  // bytes in a row

// Prevents the compiler from moving uses of d across begin() and wait().
template <int kCount>
__device__ inline void hold(int (&d)[kCount]) {
#if defined(CONVSCOPE_WGMMA)
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(d[i])::"memory");
#else
  (void)d;
#endif
}

// Computes d = A B + (add ? d : 0).
template <bool kSigned, int kColumns>
__device__ inline void multiply(int (&d)[kColumns / 2], const unsigned char* a,
                                const unsigned char* b, bool add) {
#if defined(CONVSCOPE_CUDA_EMULATED)
  using Byte = std::conditional_t<kSigned, signed char, unsigned char>;
  const int warp = static_cast<int>(threadIdx.x % 128 / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int i = 0; i < kColumns / 2; ++i) {  // d[4 j + 2 half + e]
    const int row = 16 * warp + lane / 4 + i / 2 % 2 * 8;
    const int column = i / 4 * 8 + 2 * (lane % 4) + i % 2;
    int sum = add ? d[i] : 0;
    for (int piece = 0; piece < 8; ++piece) {
      const unsigned char* const x = a + swizzle_tile(row, piece);
      const unsigned char* const w = b + swizzle_tile(column, piece);
      for (int e = 0; e < 16; ++e) {
        sum += static_cast<Byte>(x[e]) * static_cast<signed char>(w[e]);
      }
    }
    d[i] = sum;
  }
#elif defined(CONVSCOPE_WGMMA)
  const std::uint64_t from_a = wgmma_descriptor(a, kTileBlockBytes);
  const std::uint64_t from_b = wgmma_descriptor(b, kTileBlockBytes);
#pragma unroll
  for (unsigned k = 0; k < kDepth / 32; ++k) {  // 32 bytes per step
    wgmma_bytes<kSigned, kColumns>(d, from_a + 2 * k, from_b + 2 * k, add || k > 0);
  }
#elif defined(__CUDA_ARCH__)
  const int warp = static_cast<int>(threadIdx.x % 128 / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int eight = lane / 8;  // the tile (8 rows of 16 bytes) that this lane addresses
  if (!add) {
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) d[i] = 0;
  }
#pragma unroll
  for (int k = 0; k < kDepth / 32; ++k) {
    unsigned rows[4];
    load_matrices<false>(rows, a + swizzle_tile(16 * warp + lane % 16, 2 * k + lane / 16));
#pragma unroll
    for (int j = 0; j < kColumns / 16; ++j) {
      unsigned columns[4];
      load_matrices<false>(columns,
                           b + swizzle_tile(16 * j + lane % 8 + eight / 2 * 8, 2 * k + eight % 2));
      mma_bytes<kSigned>(d + 8 * j, rows, columns[0], columns[1]);
      mma_bytes<kSigned>(d + 8 * j + 4, rows, columns[2], columns[3]);
    }
  }
#endif
}

}  // namespace convscope::byte_tile
