// SPDX-License-Identifier: Apache-2.0
// matrix_tile.cuh: D [64 x N] += A [64 x 64] B [64 x N] by one warp group (128 threads) on the
// tensor cores, A and B in fp16/bf16 in shared memory. It uses wgmma on sm_90a, ldmatrix and
// mma.sync on all other GPUs from sm_80, and plain loops over the same bytes in the emulation.
//
// Shared memory   A tile has rows of 128 bytes, each of eight pieces of 16 bytes (8 elements).
//                 Piece c of row r is stored as piece c ^ (r % 8), so that eight rows use all banks
//                 (swizzle_tile). Base addresses are multiples of 1024 bytes.
//                 depth inner   K-major: row = a row of A or a column of B, with 64 elements of K
//                 depth outer   M/N-major: row = an index of K, with 64 rows of A or columns of B;
//                               further columns are further blocks of 64 rows, kTileBlockBytes
//                               apart
// Registers       thread t of the group (warp t/32, lane l = t%32) has D[row][column] for
//                 row = 16 warp + l/4 + 8 i, column = 8 j + 2 (l%4) + e in d[4 j + 2 i + e]
// Order           begin(); multiply()...; commit(); wait<groups>(). Do not access d or the tiles
//                 before wait. Accumulators are f32; the unit rounds them towards zero.
#pragma once

#include <cstdint>
#include <cstring>

#include "framework/cuda/launch.cuh"
#include "framework/dtype.h"

#if defined(CONVSCOPE_CUDA_EMULATED)
#include "framework/cuda/emulation/products.h"
#else
#include "framework/cuda/tensor_cores/mma.cuh"
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define CONVSCOPE_WGMMA 1
#include "framework/cuda/tensor_cores/wgmma.cuh"
#endif
#endif

namespace convscope {

inline constexpr int kTileDepth = 64;  // elements per row
inline constexpr int kTileRowBytes = 128;
inline constexpr int kTileBlockBytes = 64 * kTileRowBytes;  // 64 rows

// Returns the offset in bytes from the tile's base to piece `piece` of row `row`.
constexpr int swizzle_tile(int row, int piece) {
  return row * kTileRowBytes + ((piece ^ (row & 7)) << 4);
}

// Returns the first multiple of 1024 bytes in the block's dynamic shared memory: tiles begin there.
__device__ inline unsigned char* aligned_shared() {
  auto* const shared = dynamic_shared<unsigned char>();
  const auto address = reinterpret_cast<std::uintptr_t>(shared);
  return shared + (1024 - address % 1024) % 1024;
}

namespace matrix_tile {

__device__ inline void begin() {
#if defined(CONVSCOPE_WGMMA)
  wgmma_fence();
#endif
}
__device__ inline void commit() {
#if defined(CONVSCOPE_WGMMA)
  wgmma_commit();
#endif
}
template <int kGroups>
__device__ inline void wait() {
#if defined(CONVSCOPE_WGMMA)
  wgmma_wait<kGroups>();
#endif
}
// Prevents the compiler from moving uses of d across begin() and wait().
template <int kCount>
__device__ inline void hold(float (&d)[kCount]) {
#if defined(CONVSCOPE_WGMMA)
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
#else
  (void)d;
#endif
}

#if defined(CONVSCOPE_CUDA_EMULATED)
// Returns the decoded elements of a tile. It decodes again only when the tile's bytes have changed,
// because the warps of a block request the same tiles one after another. The result is valid until
// the next call for the same operand.
template <class Half, int kRows, bool kDepthOuter, char kFactor>
inline const emulation::Factor<kRows, kTileDepth>& decoded(const unsigned char* tile) {
  constexpr int kCopies = 6;  // about the number of tiles in one step
  struct Copy {
    const unsigned char* tile = nullptr;
    unsigned char bytes[kRows * kTileRowBytes];
    emulation::Factor<kRows, kTileDepth> factor;
  };
  static Copy copies[kCopies];
  static int next = 0;
  for (const Copy& copy : copies) {
    if (copy.tile == tile && std::memcmp(copy.bytes, tile, sizeof(copy.bytes)) == 0) {
      return copy.factor;
    }
  }
  Copy& copy = copies[next++ % kCopies];
  copy.tile = tile;
  std::memcpy(copy.bytes, tile, sizeof(copy.bytes));
  copy.factor.template fill<Half, kDepthOuter>([tile](int row, int depth) {
    return tile + (kDepthOuter ? row / 64 * kTileBlockBytes + swizzle_tile(depth, row % 64 / 8)
                               : swizzle_tile(row, depth / 8));
  });
  return copy.factor;
}
#endif

// Computes d = A B + (add ? d : 0).
template <class Half, int kColumns, bool kDepthOuter>
__device__ inline void multiply(float (&d)[kColumns / 2], const unsigned char* a,
                                const unsigned char* b, bool add) {
#if defined(CONVSCOPE_CUDA_EMULATED)
  struct Step {
    const unsigned char *a, *b;
    float* d;
    bool add;
  };
  const int warp = static_cast<int>(threadIdx.x % 128 / 32);
  (void)emulation::warp_collective<char>(
      "a product of tiles", Step{a, b, d, add},
      [warp](const emulation::Lanes<Step>& in, const auto&) {
        const auto& rows = decoded<Half, 64, kDepthOuter, 'a'>(in[0].a);
        const auto& columns = decoded<Half, kColumns, kDepthOuter, 'b'>(in[0].b);
        const emulation::Sums sums(rows, 16 * warp, columns);
        for (unsigned lane = 0; lane < 32; ++lane) {
          emulation::give_out<kColumns>(sums.of, lane, in[lane].d, in[lane].add);
        }
      });
#elif defined(CONVSCOPE_WGMMA)
  // The distance to the next 16 elements of K (32 bytes of a row, or 16 rows), in units of 16
  // bytes.
  constexpr unsigned kStep = (kDepthOuter ? 16 * kTileRowBytes : 32) >> 4;
  const std::uint64_t from_a = wgmma_descriptor(a, kTileBlockBytes);
  const std::uint64_t from_b = wgmma_descriptor(b, kTileBlockBytes);
#pragma unroll
  for (unsigned k = 0; k < kTileDepth / 16; ++k) {
    wgmma<Half, kColumns, kDepthOuter>(d, from_a + k * kStep, from_b + k * kStep, add || k > 0);
  }
#elif defined(__CUDA_ARCH__)
  const int warp = static_cast<int>(threadIdx.x % 128 / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int eight = lane / 8;  // the 8 x 8 tile that this lane addresses
  if (!add) {
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) d[i] = 0;
  }
#pragma unroll
  for (int k = 0; k < kTileDepth / 16; ++k) {
    unsigned rows[4];
    const unsigned char* from =
        kDepthOuter ? a + swizzle_tile(16 * k + lane % 8 + eight / 2 * 8, 2 * warp + eight % 2)
                    : a + swizzle_tile(16 * warp + lane % 16, 2 * k + lane / 16);
    load_matrices<kDepthOuter>(rows, from);
#pragma unroll
    for (int j = 0; j < kColumns / 16; ++j) {
      unsigned columns[4];
      from = kDepthOuter
                 ? b + j / 4 * kTileBlockBytes +
                       swizzle_tile(16 * k + lane % 8 + eight % 2 * 8, j % 4 * 2 + eight / 2)
                 : b + swizzle_tile(16 * j + lane % 8 + eight / 2 * 8, 2 * k + eight % 2);
      load_matrices<kDepthOuter>(columns, from);
      mma<Half>(d + 8 * j, rows, columns[0], columns[1]);
      mma<Half>(d + 8 * j + 4, rows, columns[2], columns[3]);
    }
  }
#endif
}

}  // namespace matrix_tile
}  // namespace convscope
