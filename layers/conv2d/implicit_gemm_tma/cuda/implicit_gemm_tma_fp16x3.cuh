// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_tma_fp16x3.cuh: additions to implicit_gemm_tma_gather.cuh for f32 in full
// precision: weights as two fp16 numbers each, and results stored as planes [N,C,H,W].
// Read next  implicit_gemm_tma_fp16x3_cuda.cu; layers/conv2d/shared/cuda/half_pack.cuh
#pragma once

#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_gather.cuh"

#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_f32_weights.cuh"
#include "layers/conv2d/shared/cuda/half_pack.cuh"

namespace convscope::implicit_gemm_tma {

// Weights [K,C,R,S] and the destination of their high and low parts. A plane has `plane` 16-byte
// pieces, in the order of transpose_weights_kernel.
struct TransposeFp16x3 {
  const float* w = nullptr;
  uint4* out = nullptr;
  std::int64_t plane = 0;
  half_tiles::Maxima maxima;
  TransposeShape shape;
};

// Transposes the weights of block (x, y) through shared memory [k][c][tap].
__device__ inline void transpose_fp16x3(const TransposeFp16x3& of, int x, int y,
                                        float* transposed) {
  constexpr int kPiece = half_tiles::kPieceElements;
  const TransposeShape& z = of.shape;
  const TransposeBlock block(z, x, y);
  let_next_kernel_start();
  wait_for_previous_kernel();
  block.bring(z, of.w, transposed);
  const float scale = half_tiles::power_of_two(half_tiles::read_exponent(of.maxima));
  __syncthreads();
  const int pieces = block.depths / kPiece;
  const int apart = z.across ? z.pitch : z.kernel;
  for (int i = static_cast<int>(threadIdx.x); i < block.rows * pieces; i += kTransposeThreads) {
    const int row = i / pieces;
    const int d = (i - row * pieces) * kPiece;
    const int channel = z.by_kernel.divide(row);
    const float* const from = transposed + (row - channel * z.kernel) +
                              channel * (z.across ? z.kernel : z.pitch) + d * apart;
    float values[kPiece];
#pragma unroll
    for (int e = 0; e < kPiece; ++e) values[e] = d + e < block.real ? from[e * apart] : 0.0f;
    half_tiles::write_piece<float, 2>(
        values, scale,
        of.out + ((block.first_row + row) * z.depth + block.first_depth + d) / kPiece, of.plane);
  }
}

__global__ __launch_bounds__(kTransposeThreads) inline void transpose_fp16x3_kernel(
    const __grid_constant__ TransposeFp16x3 weights) {
  __shared__ float transposed[kTransposedNumbers];
  transpose_fp16x3(weights, static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y), transposed);
}

// Kernel: packs the image and the weights of a single call. Blocks with blockIdx.x below
// `blocks_of_image` pack the image; the following blocks transpose weights.
template <int kChannelsLog2>
__global__ __launch_bounds__(kTransposeThreads) void pack_and_transpose_kernel(
    const __grid_constant__ half_tiles::PackPixels image, int blocks_of_image,
    const __grid_constant__ TransposeFp16x3 weights) {
  static_assert(half_tiles::pack_tile(kChannelsLog2) <= kTransposedNumbers &&
                kTransposeThreads == 256);
  __shared__ float shared[kTransposedNumbers];
  const int block = static_cast<int>(blockIdx.x);
  if (block < blocks_of_image) {
    return half_tiles::pack_pixels<float, 2, kChannelsLog2>(image, block, shared);
  }
  const int wide = weights.shape.blocks_of_c();
  const int weight_block = block - blocks_of_image;
  transpose_fp16x3(weights, weight_block % wide, weight_block / wide, shared);
}

#if defined(CONVSCOPE_MATRIX_STEP)

// Stores the tile of a warp group as planes. Eight lanes store neighbouring pixels of a channel,
// which are one sector.
template <class V>
__device__ inline void store_planes(const Gather& z, const GatherTile& tile,
                                    const float (&sums)[V::kTiles][V::kColumns / 2]) {
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const Phase& phase = z.taps.phase[tile.phase];
  const float2 unscale = *z.unscale;
  const std::int64_t area = static_cast<std::int64_t>(z.out_h) * z.out_w;
  const auto* const bias = static_cast<const float*>(z.bias);
  const auto* const residual = static_cast<const float*>(z.residual);
  auto* const out = static_cast<float*>(z.out);
#pragma unroll
  for (int row = 0; row < 2 * V::kTiles; ++row) {
    const int i = row % 2;
    const int m =
        (thread / 128 * V::kTiles + row / 2) * 64 + thread % 128 / 32 * 16 + lane / 4 + 8 * i;
    const int line = z.by_pitch.divide(m);
    const int w = tile.w + m - line * z.by_pitch.d;
    const int image = z.by_lines.divide(line);
    const int h = tile.h + line - image * z.by_lines.d;
    if (w >= tile.w + z.width || w >= phase.outputs_w || h >= tile.h + z.height ||
        h >= phase.outputs_h || image >= z.tile_images || tile.image + image >= z.images) {
      continue;
    }
    const int first = tile.column + lane % 4 * 2;
    const std::int64_t at =
        (static_cast<std::int64_t>(tile.image + image) * z.out_channels + first) * area +
        static_cast<std::int64_t>(phase.first_h + h * z.every_h) * z.out_w + phase.first_w +
        w * z.every_w;
    // Issues all loads before the first store. The compiler must assume that a store changes the
    // loaded memory, so a load that follows a store would wait for the store.
    float more[V::kColumns / 4] = {};
    if (residual != nullptr) {
#pragma unroll
      for (int j = 0; j < V::kColumns / 4; ++j) {
        const int channel = 8 * (j / 2) + j % 2;
        if (first + channel < z.out_channels) more[j] = residual[at + channel * area];
      }
    }
#pragma unroll
    for (int j = 0; j < V::kColumns / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        if (first + 8 * j + e >= z.out_channels) continue;
        const std::int64_t to = at + (8 * j + e) * area;
        float y = sums[row / 2][4 * j + 2 * i + e] * unscale.x * unscale.y;
        if (bias != nullptr) y += bias[first + 8 * j + e];
        if (residual != nullptr) y += more[2 * j + e];
        out[to] = finished(y, z.relu);
      }
    }
  }
}

#endif

}  // namespace convscope::implicit_gemm_tma
