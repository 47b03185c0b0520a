// SPDX-License-Identifier: Apache-2.0
// matrix_step.cuh: D [64 x N] += A [64 x 16] B [16 x N] by one warp group (128 threads), A and B in
// fp16/bf16 in shared memory. It uses wgmma on sm_90a, and loops over the same bytes in the
// emulation. Other GPUs have no such instruction.
//
// An operand has rows of 128, 64 or 32 bytes (kRow: 64, 32, 16 elements). They are swizzled by the
// bits of their address (swizzled_place), so an operand may begin at any row of a larger tile. For
// example, an operand of a filter tap begins at the image row where that tap begins.
//   place(tile) + rows(shift)   an operand that begins `shift` rows further
//   K-major     + bytes(32)     16 elements of K further in the same rows
//   M/N-major   + rows(16)      16 elements of K further; more than 64 columns of B are blocks of
//                               64 columns, kTileBlockBytes apart
// The layout of D in registers and the order of the calls are those of matrix_tile.cuh. f32
// operands are read as tf32. For f32, a step has 8 elements of K, which also are 32 bytes, and
// operands are K-major.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "framework/cuda/tensor_cores/matrix_tile.cuh"
#include "framework/cuda/tensor_cores/wgmma_tf32.cuh"
#include "framework/cuda/tensor_map.h"

#if defined(CONVSCOPE_CUDA_EMULATED) || defined(CONVSCOPE_WGMMA)
#define CONVSCOPE_MATRIX_STEP 1

namespace convscope::matrix_step {

using Place = std::uint64_t;

__device__ inline constexpr Place bytes(int count) {
#if defined(CONVSCOPE_CUDA_EMULATED)
  return static_cast<Place>(count);
#else
  return static_cast<Place>(count >> 4);  // the unit of a descriptor
#endif
}
template <int kRow>
__device__ inline constexpr Place rows(int count) {
  return bytes(count * kRow * 2);
}
template <int kRow>
__device__ inline Place place(const unsigned char* tile) {
#if defined(CONVSCOPE_CUDA_EMULATED)
  return reinterpret_cast<Place>(tile);
#else
  return wgmma_descriptor(tile, kTileBlockBytes, kRow * 2);
#endif
}

template <int kRegisters>
__device__ inline void take_registers() {
#if !defined(CONVSCOPE_CUDA_EMULATED)
  convscope::take_registers<kRegisters>();
#endif
}
template <int kRegisters>
__device__ inline void give_registers() {
#if !defined(CONVSCOPE_CUDA_EMULATED)
  convscope::give_registers<kRegisters>();
#endif
}

#if defined(CONVSCOPE_CUDA_EMULATED)
// Returns the 16-byte piece that begins with element (line, K index `depth`) of an operand.
template <class Half, bool kOuter, int kRow>
inline const unsigned char* piece(Place factor, int line, int depth) {
  constexpr int kBytes = static_cast<int>(sizeof(Half));
  const int at = kOuter ? line / 64 * kTileBlockBytes + depth * kRow * 2 + line % 64 * 2
                        : line * kRow * 2 + depth * kBytes;
  return reinterpret_cast<const unsigned char*>(
      swizzled_place(factor + static_cast<Place>(at), kRow * 2));
}
#endif

// Elements of K per step.
template <class Half>
inline constexpr int kDepths = 32 / static_cast<int>(sizeof(Half));

// Computes d = A B + (add ? d : 0). Half: type of the operands; float: tf32.
template <class Half, int kColumns, bool kAOuter, bool kBOuter, int kARow = 64, int kBRow = 64>
__device__ inline void multiply(float (&d)[kColumns / 2], Place a, Place b, bool add) {
  static_assert(sizeof(Half) == 2 || !(kAOuter || kBOuter));
#if defined(CONVSCOPE_CUDA_EMULATED)
  struct Step {
    Place a, b;
    float* d;
    bool add;
  };
  const int warp = static_cast<int>(threadIdx.x % 128 / 32);
  const auto compute = [warp](const emulation::Lanes<Step>& in, const auto&) {
    static emulation::Factor<16, kDepths<Half>> left;
    static emulation::Factor<kColumns, kDepths<Half>> right;
    left.template fill<Half, kAOuter>([&](int row, int depth) {
      return piece<Half, kAOuter, kARow>(in[0].a, 16 * warp + row, depth);
    });
    right.template fill<Half, kBOuter>(
        [&](int column, int depth) { return piece<Half, kBOuter, kBRow>(in[0].b, column, depth); });
    const emulation::Sums sums(left, 0, right);
    for (unsigned lane = 0; lane < 32; ++lane) {
      emulation::give_out<kColumns>(sums.of, lane, in[lane].d, in[lane].add);
    }
  };
  (void)emulation::warp_collective<char>("wgmma", Step{a, b, d, add}, compute);
#else
  if constexpr (sizeof(Half) == 4) {
    wgmma_tf32<kColumns>(d, a, b, add);
  } else {
    wgmma<Half, kColumns, kAOuter, kBOuter>(d, a, b, add);
  }
#endif
}

}  // namespace convscope::matrix_step

#endif
