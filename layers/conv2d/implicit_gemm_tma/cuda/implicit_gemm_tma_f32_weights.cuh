// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_tma_f32_weights.cuh: f32 weights [K,C,R,S] for tf32 products, which need the
// reduction dimension innermost: [K][R S][C rounded up] for forward, [C][R S][K rounded up] for
// backward_data. TMA rounds them to tf32 while it loads them.
// Read next  implicit_gemm_tma_run_cuda.cu
#pragma once

#include <algorithm>
#include <cstdint>

#include "framework/cuda/launch.cuh"
#include "framework/host_device.h"
#include "framework/int_math.h"

namespace convscope::implicit_gemm_tma {

constexpr int kTransposeThreads = 256;
constexpr int kTransposedNumbers = 8192;  // most elements of a block, in shared memory
constexpr int kTransposedGoal = 2304;     // fewer elements per block, for many blocks

// The weights that a block transposes: `k_tile` output and `c_tile` input channels with all their
// taps. `pitch` is the distance of two output channels in shared memory. It is odd, so that
// neighbours in k use different banks.
struct TransposeShape {
  int k = 0, c = 0, kernel = 1;
  int depth = 8;        // C or K, rounded up
  bool across = false;  // true: K is innermost
  int k_tile = 1, c_tile = 8, pitch = 1;
  FastDivisor by_kernel, by_row;  // by_row: elements of an output channel of a block

  TransposeShape(int k_, int c_, int kernel_, bool across_, int most_c = 256)
      : k(k_), c(c_), kernel(kernel_), depth(round_up(across_ ? k_ : c_, 8)), across(across_) {
    if (across) {
      k_tile = 32;
      c_tile = std::clamp(kTransposedGoal / (32 * kernel), 1, c);
    } else {
      // Blocks of equal width.
      const int most = std::min(most_c, std::max(8, kTransposedGoal / kernel / 8 * 8));
      c_tile = round_up(ceil_div(depth, ceil_div(depth, most)), 8);
      k_tile = std::clamp(kTransposedGoal / (kernel * c_tile), 1, k);
    }
    pitch = kernel * c_tile | 1;
    by_kernel = FastDivisor(kernel);
    by_row = FastDivisor(c_tile * kernel);
  }
  CONVSCOPE_HOST_DEVICE int blocks_of_k() const { return ceil_div(across ? depth : k, k_tile); }
  CONVSCOPE_HOST_DEVICE int blocks_of_c() const { return ceil_div(across ? c : depth, c_tile); }
};

// The elements of w that block (x: input channels, y: output channels) reads, and the rows of the
// result that it writes.
struct TransposeBlock {
  int first_c, first_k, real_c, real_k;  // the counts are 0 after the last channel
  // A row of the result has one outer channel and one tap. Its elements are the reduction.
  int first_depth, depths, real, rows;
  std::int64_t first_row;

  __device__ TransposeBlock(const TransposeShape& z, int x, int y)
      : first_c(x * z.c_tile),
        first_k(y * z.k_tile),
        real_c(max(min(z.c_tile, z.c - first_c), 0)),
        real_k(max(min(z.k_tile, z.k - first_k), 0)),
        first_depth(z.across ? first_k : first_c),
        depths(min(z.across ? z.k_tile : z.c_tile, z.depth - first_depth)),
        real(z.across ? real_k : real_c),
        rows((z.across ? real_c : real_k) * z.kernel),
        first_row(static_cast<std::int64_t>(z.across ? first_c : first_k) * z.kernel) {}

  // Loads the block's w into `transposed` [k][c][tap], where output channels are z.pitch apart.
  // The loops are not nested, so that a thread's loads do not wait for each other.
  __device__ void bring(const TransposeShape& z, const float* __restrict__ w,
                        float* transposed) const {
    const int row = real_c * z.kernel;
    // `real_c == z.c_tile` would be wrong: nvcc 13.0 (sm_90a) miscompiles the comparison of a
    // minimum, clamped at 0, with one of its arguments.
    const bool whole = z.c - first_c >= z.c_tile;
    const float* const from = w + (static_cast<std::int64_t>(first_k) * z.c + first_c) * z.kernel;
    const std::int64_t apart = static_cast<std::int64_t>(z.c) * z.kernel;
#pragma unroll 8
    for (int i = static_cast<int>(threadIdx.x); i < real_k * row; i += kTransposeThreads) {
      const int k = whole ? z.by_row.divide(i) : i / row;
      const int row_element = i - k * row;
      transposed[k * z.pitch + row_element] = from[k * apart + row_element];
    }
  }
};

__global__ __launch_bounds__(kTransposeThreads) inline void transpose_weights_kernel(
    const float* __restrict__ w, const __grid_constant__ TransposeShape z, float* out) {
  __shared__ float transposed[kTransposedNumbers];  // [k][c][tap]
  const TransposeBlock block(z, static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y));
  let_next_kernel_start();
  wait_for_previous_kernel();
  block.bring(z, w, transposed);
  __syncthreads();
  const int apart = z.across ? z.pitch : z.kernel;
  for (int row = static_cast<int>(threadIdx.x) / 32; row < block.rows;
       row += kTransposeThreads / 32) {
    const int channel = z.by_kernel.divide(row);
    const float* const from =
        transposed + (row - channel * z.kernel) + channel * (z.across ? z.kernel : z.pitch);
    float* const to = out + (block.first_row + row) * z.depth + block.first_depth;
#pragma unroll 4
    for (int d = static_cast<int>(threadIdx.x) % 32; d < block.depths; d += 32) {
      to[d] = d < block.real ? from[d * apart] : 0.0f;
    }
  }
}

}  // namespace convscope::implicit_gemm_tma
