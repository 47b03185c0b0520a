// SPDX-License-Identifier: Apache-2.0
// int8_gemm_tiles.cuh: the kernel of int8_gemm_cuda.cu, whose header explains the idea. In each
// step a block copies 128 bytes of the reduction into shared memory, asynchronously and several
// steps ahead, and multiplies them with byte_tile.cuh. Rows are pixels and columns are output
// channels. So the sums of a thread are neighbouring channels, and a word of y holds four of them.
// Read next  layers/conv2d/shared/cuda/gather_lines.h; int8_outputs.cuh
#pragma once

#include <cstdint>

#include "framework/cuda/async_copy.cuh"
#include "framework/cuda/tensor_cores/byte_tile.cuh"
#include "layers/conv2d/int8/shared/cuda/int8_outputs.cuh"
#include "layers/conv2d/shared/cuda/gather_lines.h"

namespace convscope::int8 {

using gather::kBlockPieces;
using gather::Line;

inline constexpr int kPieceBytes = 16;  // 16 channels of a pixel

// A block: kPixelGroups x kChannelGroups warp groups, each with 64 pixels and kColumns channels.
template <bool kSigned_, int kPixelGroups_, int kChannelGroups_, int kColumns_, int kStages_,
          int kBlocks_>
struct ByteVariant {
  static constexpr bool kSigned = kSigned_;  // whether x is signed
  static constexpr int kPixelGroups = kPixelGroups_;
  static constexpr int kChannelGroups = kChannelGroups_;
  static constexpr int kColumns = kColumns_;  // columns of a warp group
  static constexpr int kStages = kStages_;
  static constexpr int kBlocks = kBlocks_;  // blocks that share an SM
  // The product of one step may still run when the next one begins; see sum_bytes().
  static constexpr int kUnderWay = kStages >= 3 ? 1 : 0;
  static constexpr int kAhead = kStages - 1 - kUnderWay;  // steps that are copied in advance
  static constexpr int kThreads = 128 * kPixelGroups * kChannelGroups;
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kPixels = 64 * kPixelGroups;
  static constexpr int kChannels = kColumns * kChannelGroups;
  static constexpr int kSums = kColumns / 2;  // accumulators of a thread
  static constexpr int kPixelBytes = kPixels * kTileRowBytes;
  static constexpr int kStageBytes = (kPixels + kChannels) * kTileRowBytes;
  static constexpr int kSharedBytes = kStages * kStageBytes + 1024;  // including alignment
};

// Returns the order of the columns in a tile. A thread of a warp group holds the columns 2 t, 2 t +
// 1, 8 + 2 t and 9 + 2 t of each 16 (t = lane % 4). They become the channels 4 t .. 4 t + 3.
constexpr int channel_of_column(int column) {
  return column / 16 * 16 + column % 8 / 2 * 4 + column % 16 / 8 * 2 + column % 2;
}

struct ByteGather {
  const uint4* pixels = nullptr;   // x: [N][blocks of 16 channels][H][W] pieces
  const uint4* weights = nullptr;  // [group][step][rows][8 pieces], see pack_bytes_kernel
  const int2* table = nullptr;     // [steps][8 pieces], see place_of_piece()
  int* parts = nullptr;            // [splits] arrays of y's size, when splits > 1
  std::int64_t part_size = 0;
  CudaOutputs end;
  int images = 0, groups = 1, channels = 0;  // channels: output channels of a group
  int weight_rows = 0, steps = 0, splits = 1;
  int pieces = 0, all_pieces = 0;  // blocks of input channels in a group, and in all groups
  int out_blocks = 0;              // blocks of output channels in all groups
  FastDivisor by_channel_tiles;
  Line high, wide;
};

// Computes `sums`, the product of `steps` steps. load(step, stage) starts the copies of one step;
// sum_bytes() calls it for steps 0, 1, 2, ... meanwhile() runs during the first copies. The effects
// of meanwhile() are visible to all threads when sum_bytes() returns.
template <class V, class Load, class Meanwhile>
__device__ inline void sum_bytes(int (&sums)[V::kSums], unsigned char* stages, int steps,
                                 const Load& load, const Meanwhile& meanwhile) {
  const int group = static_cast<int>(threadIdx.x) / 128;
  const int from_pixels = group % V::kPixelGroups * kTileBlockBytes;
  const int from_channels =
      V::kPixelBytes + group / V::kPixelGroups * (V::kColumns * kTileRowBytes);
#pragma unroll
  for (int i = 0; i < V::kSums; ++i) sums[i] = 0;
#pragma unroll
  for (int i = 0; i < V::kAhead; ++i) {
    if (i < steps) load(i, stages + i * V::kStageBytes);
    async_copy_commit();
  }
  meanwhile();
  int stage = 0;
  int to_fill = V::kAhead;
  for (int step = 0; step < steps; ++step) {
    async_copy_wait<V::kAhead - 1>();
    order_shared_writes_for_matrix_unit();
    __syncthreads();  // the step is loaded, and no thread reads stage `to_fill` any longer
    const unsigned char* const at = stages + stage * V::kStageBytes;
    matrix_tile::begin();
    byte_tile::hold(sums);
    byte_tile::multiply<V::kSigned, V::kColumns>(sums, at + from_pixels, at + from_channels, true);
    matrix_tile::commit();
    if (step + V::kAhead < steps) load(step + V::kAhead, stages + to_fill * V::kStageBytes);
    async_copy_commit();
    matrix_tile::wait<V::kUnderWay>();
    byte_tile::hold(sums);
    stage = stage == V::kStages - 1 ? 0 : stage + 1;
    to_fill = to_fill == V::kStages - 1 ? 0 : to_fill + 1;
  }
  matrix_tile::wait<0>();
  byte_tile::hold(sums);
  async_copy_wait<0>();
}

// Returns the offset in x, in pieces, of tap (0, 0) of an output pixel, and a mask of its taps
// inside the image: bit t for row t, bit 16 + t for column t.
__device__ inline int2 place_of_pixel(const ByteGather& z, int pixel, int group, int pixels) {
  const int line = z.wide.by_outputs.divide(pixel);
  const int image = z.high.by_outputs.divide(line);
  const int w = pixel - line * z.wide.outputs;
  const int h = line - image * z.high.outputs;
  const int from =
      ((image * z.all_pieces + group * z.pieces) * z.high.in_size + z.high.input(h, 0)) *
          z.wide.in_size +
      z.wide.input(w, 0);
  const unsigned inside = z.high.inside(h) | z.wide.inside(w) << 16;
  return make_int2(from, pixel < pixels ? static_cast<int>(inside) : 0);
}

// Kernel: blockIdx.x selects a channel tile inside a pixel tile, blockIdx.y a group, z a split.
template <class V>
__global__ __launch_bounds__(V::kThreads, V::kBlocks) void gather_bytes_kernel(
    const __grid_constant__ ByteGather z) {
  __shared__ Factors<V::kChannels> factors;
  unsigned char* const stages = aligned_shared();
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int pixel_tile = z.by_channel_tiles.divide(static_cast<int>(blockIdx.x));
  const int first_channel =
      (static_cast<int>(blockIdx.x) - pixel_tile * z.by_channel_tiles.d) * V::kChannels;
  const int first_pixel = pixel_tile * V::kPixels;
  const int group = static_cast<int>(blockIdx.y), split = static_cast<int>(blockIdx.z);
  const int pixels = z.images * z.high.outputs * z.wide.outputs;
  const int first_step = gather::part_begin(z.steps, split, z.splits);
  const int steps = gather::part_begin(z.steps, split + 1, z.splits) - first_step;

  // In each copy the 32 lanes of a warp take the same piece of 32 neighbouring pixels, which are
  // adjacent in memory. A thread copies kTurns of the eight pieces, always from the same pixels.
  constexpr int kTurns = V::kWarps >= 8 ? 1 : 8 / V::kWarps;
  constexpr int kWarpsBeside = V::kWarps >= 8 ? V::kWarps / 8 : 1;
  constexpr int kRows = V::kPixels / 32 / kWarpsBeside;
  static_assert(kRows >= 1 && V::kPixels <= V::kThreads);
  const int first_row = warp / 8 * 32 + lane;
  __shared__ int2 places[V::kPixels];
  if (thread < V::kPixels) places[thread] = place_of_pixel(z, first_pixel + thread, group, pixels);
  __syncthreads();
  int from[kRows];
  unsigned inside[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int2 place = places[first_row + i * 32 * kWarpsBeside];
    from[i] = place.x;
    inside[i] = static_cast<unsigned>(place.y);
  }
  const uint4* const weights =
      z.weights +
      ((static_cast<std::int64_t>(group) * z.steps + first_step) * z.weight_rows + first_channel) *
          kBlockPieces;
  const int2* const table = z.table + first_step * kBlockPieces;
  let_next_kernel_start();
  wait_for_previous_kernel();
  int2 next_place[kTurns];
#pragma unroll
  for (int i = 0; i < kTurns; ++i) {
    next_place[i] = steps > 0 ? table[(warp + i * V::kWarps) % 8] : make_int2(0, 0);
  }

  const auto load = [&](int step, unsigned char* stage) {
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
      const int piece = (warp + i * V::kWarps) % 8;
      const int2 place = next_place[i];
      if (step + 1 < steps) next_place[i] = table[(step + 1) * kBlockPieces + piece];
#pragma unroll
      for (int j = 0; j < kRows; ++j) {
        const bool valid =
            (inside[j] >> (place.y & 15) & inside[j] >> (16 + (place.y >> 8)) & 1u) != 0;
        async_copy<16>(stage + swizzle_tile(first_row + j * 32 * kWarpsBeside, piece),
                       z.pixels + (valid ? from[j] + place.x : 0), valid);
      }
    }
    const uint4* const rows =
        weights + static_cast<std::int64_t>(step) * z.weight_rows * kBlockPieces;
#pragma unroll
    for (int i = 0; i < V::kChannels * kBlockPieces / V::kThreads; ++i) {
      const int at = thread + i * V::kThreads;
      async_copy<16, false>(stage + V::kPixelBytes + swizzle_tile(at / kBlockPieces, at % 8),
                            rows + at);
    }
  };
  int sums[V::kSums];
  sum_bytes<V>(sums, stages, steps, load, [&] {
    if (z.splits == 1) make_factors(z.end, group * z.channels + first_channel, factors);
  });

  const int warp_group = thread / 128;
  const int out_area = z.high.outputs * z.wide.outputs;
  const int local = warp_group / V::kPixelGroups * V::kColumns;  // first channel in the tile
  const int tile_channel = group * z.channels + first_channel;
  const int channel_block = (tile_channel + local) / 16;
  const int blocks_left = ceil_div(z.channels - first_channel - local, 16);
  std::int64_t at[2];
  bool there[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int pixel =
        first_pixel + warp_group % V::kPixelGroups * 64 + warp % 4 * 16 + lane / 4 + 8 * i;
    const int image = z.high.by_outputs.divide(z.wide.by_outputs.divide(pixel));
    there[i] = pixel < pixels;
    at[i] = ((static_cast<std::int64_t>(image) * z.out_blocks + channel_block) * out_area + pixel -
             image * out_area) *
                16 +
            lane % 4 * 4;
  }
  // Calls store(sums of four channels, first channel in the tile, element of y).
  const auto for_each_four = [&](const auto& store) {
#pragma unroll
    for (int block = 0; block < V::kColumns / 16; ++block) {
      if (block >= blocks_left) break;
      const std::int64_t further = static_cast<std::int64_t>(block) * out_area * 16;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (!there[i]) continue;
        const int four[4] = {sums[8 * block + 2 * i], sums[8 * block + 2 * i + 1],
                             sums[8 * block + 4 + 2 * i], sums[8 * block + 5 + 2 * i]};
        store(four, local + block * 16 + lane % 4 * 4, at[i] + further);
      }
    }
  };
  if (z.splits > 1) {
    int* const part = z.parts + split * z.part_size;
    for_each_four([&](const int(&four)[4], int, std::int64_t to) {
      *reinterpret_cast<int4*>(part + to) = make_int4(four[0], four[1], four[2], four[3]);
    });
    return;
  }
  with_kind(z.end, [&](auto known) {
    for_each_four([&](const int(&four)[4], int channel, std::int64_t to) {
      store_four<decltype(known)::kind>(z.end, factors, tile_channel, channel, four, to);
    });
  });
}

}  // namespace convscope::int8
