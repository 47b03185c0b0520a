// SPDX-License-Identifier: Apache-2.0
// half_pack.cuh: the passes around fp16/bf16 matrix products: they find largest magnitudes, store
// images with innermost channels as one or two fp16 planes, and add the parts of a split reduction.
// Read next  half_pieces.h; half_steps.cuh, the products
#pragma once

#include <cstdint>

#include "framework/cuda/half_piece.cuh"
#include "framework/cuda/launch.cuh"
#include "layers/conv2d/epilogue.cuh"
#include "layers/conv2d/shared/cuda/half_pieces.h"

namespace convscope::half_tiles {

inline constexpr int kMaximaBlocks = 256;  // for each of the two operands
inline constexpr int kMaximaThreads = 1024;

// ---- the largest finite magnitude of a tensor --------------------------------------------------

// The maxima of one operand, as the bits of floats. If `bits` is null, the operand is not scaled.
struct Maxima {
  const unsigned* bits = nullptr;
  int count = 0;  // one from each block of threads
};
inline int maxima_blocks(std::int64_t count) {
  const std::int64_t blocks = (count + 8 * kMaximaThreads - 1) / (8 * kMaximaThreads);
  return static_cast<int>(blocks < 1 ? 1 : blocks > kMaximaBlocks ? kMaximaBlocks : blocks);
}

// Kernel: block i writes maxima[i]. The first a_blocks blocks read a, the others read b. The bits
// of magnitudes compare like the magnitudes.
template <int kThreadCount>
__global__ __launch_bounds__(kThreadCount) void maxima_kernel(const float* a, std::int64_t a_count,
                                                              int a_blocks, const float* b,
                                                              std::int64_t b_count,
                                                              unsigned* maxima) {
  __shared__ unsigned scratch[32];
  const int block = static_cast<int>(blockIdx.x);
  const bool first = block < a_blocks;
  const float* const from = first ? a : b;
  const std::int64_t count = first ? a_count : b_count;
  const int blocks = first ? a_blocks : static_cast<int>(gridDim.x) - a_blocks;
  const std::int64_t step = static_cast<std::int64_t>(blocks) * kThreadCount;
  std::int64_t i =
      static_cast<std::int64_t>(first ? block : block - a_blocks) * kThreadCount + threadIdx.x;
  let_next_kernel_start();
  wait_for_previous_kernel();
  unsigned largest = 0;
  for (; i + 7 * step < count; i += 8 * step) {
    unsigned bits[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) bits[j] = __float_as_uint(from[i + j * step]) & 0x7fffffffu;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      if (bits[j] > largest && bits[j] < 0x7f800000u) largest = bits[j];
    }
  }
  for (; i < count; i += step) {
    const unsigned bits = __float_as_uint(from[i]) & 0x7fffffffu;
    if (bits > largest && bits < 0x7f800000u) largest = bits;
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    const unsigned other = __shfl_xor_sync(kAllLanes, largest, offset);
    largest = other > largest ? other : largest;
  }
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = largest;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int j = 1; j < kThreadCount / 32; ++j) {
      if (scratch[j] > largest) largest = scratch[j];
    }
    maxima[blockIdx.x] = largest;
  }
}

// Returns the exponent of the scale from the maxima of one operand. Each warp computes it, with all
// lanes.
__device__ inline int read_exponent(const Maxima& maxima) {
  unsigned largest = 0;
  for (int i = static_cast<int>(threadIdx.x % 32); i < maxima.count; i += 32) {
    largest = maxima.bits[i] > largest ? maxima.bits[i] : largest;
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    const unsigned other = __shfl_xor_sync(kAllLanes, largest, offset);
    largest = other > largest ? other : largest;
  }
  return scale_exponent(largest);
}

__device__ inline float power_of_two(int exponent) {  // -126 .. 127
  return __uint_as_float(static_cast<unsigned>(exponent + 127) << 23);
}

// Writes 2^-(a + b), which undoes the scales, as two numbers, because it may exceed the range of
// one float. All lanes of a warp call it.
template <class Pack>
__device__ inline void write_unscale(const Pack& z) {
  const int exponent = -(read_exponent(z.maxima) + read_exponent(z.other_maxima));
  *z.unscale = make_float2(power_of_two(exponent / 2), power_of_two(exponent - exponent / 2));
}

// ---- fp16/bf16 ----------------------------------------------------------------------------------

// Writes eight elements as one piece of fp16/bf16, and (kPlanes 2) their remainders as another
// piece. f32 elements are converted to the type Half.
template <class In, int kPlanes, class Half = Float16>
__device__ inline void write_piece(const In (&values)[kPieceElements], float scale, uint4* to,
                                   std::int64_t plane) {
  unsigned words[2][4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(In) == 2) {
      words[0][i] = values[2 * i].bits | static_cast<unsigned>(values[2 * i + 1].bits) << 16;
    } else {
      const float first = values[2 * i] * scale;
      const float second = values[2 * i + 1] * scale;
      words[0][i] = pair_from_floats<Half>(first, second);
      if constexpr (kPlanes == 2) {
        const float2 high = floats_from_pair<Float16>(words[0][i]);
        words[1][i] = pair_from_floats<Float16>(first - high.x, second - high.y);
      }
    }
  }
  *to = make_uint4(words[0][0], words[0][1], words[0][2], words[0][3]);
  if constexpr (kPlanes == 2) {
    to[plane] = make_uint4(words[1][0], words[1][1], words[1][2], words[1][3]);
  }
}

// Returns log2 of the pixels: a block packs 8 x 256, 16 x 256, 32 x 128 or 64 x 64 channels x
// pixels.
constexpr int pack_pixels_log2(int channels_log2) {
  return channels_log2 < 4 ? 8 : 12 - channels_log2;
}

struct PackPixels {
  const void* from = nullptr;  // [N, G C, H W]
  uint4* to = nullptr;         // [planes][N][H W][G][pieces of C]
  std::int64_t plane = 0;      // pieces of one plane of `to`
  int channels = 0, groups = 1, pieces = 0, area = 0;
  int channels_log2 = 3;        // of a block: 8, 16, 32 or 64 channels
  Maxima maxima, other_maxima;  // of this operand and of the other one
  float2* unscale = nullptr;    // null unless this pass writes it

  int channel_blocks() const { return ceil_div(pieces * kPieceElements, 1 << channels_log2); }
  int pixels() const { return 1 << pack_pixels_log2(channels_log2); }
};

inline int pack_channels_log2(int channels) {
  int log2 = 3;
  while (log2 < 6 && (1 << log2) < channels) ++log2;
  return log2;
}

// Returns how many numbers of shared memory a block needs for packing: [channels][pixels + 1].
constexpr int pack_tile(int channels_log2) {
  return (1 << channels_log2) * ((1 << pack_pixels_log2(channels_log2)) + 1);
}

// Packs the part of one block: block_x selects pixels of an image, block_y channels of a group.
template <class In, int kPlanes, int kChannelsLog2>
__device__ inline void pack_pixels(const PackPixels& z, int block_x, int block_y, In* tile) {
  constexpr int kChannels = 1 << kChannelsLog2;
  constexpr int kPixelsLog2 = pack_pixels_log2(kChannelsLog2);
  constexpr int kPixels = 1 << kPixelsLog2;
  constexpr int kRow = kPixels + 1;
  constexpr int kPieces = kChannels / kPieceElements;
  const int blocks = ceil_div(z.pieces, kPieces);
  const int group = block_y / blocks;
  const int first_channel = block_y % blocks * kChannels;
  const int pixel_blocks = ceil_div(z.area, kPixels);
  const int image = block_x / pixel_blocks;
  const int first_pixel = block_x % pixel_blocks * kPixels;
  const int thread = static_cast<int>(threadIdx.x);
  const int pixel = thread % kPixels;
  const int channel = thread / kPixels;
  constexpr int kStep = 256 / kPixels;
  // Existing channels of this thread, one every kStep.
  const int left = first_pixel + pixel < z.area ? z.channels - first_channel - channel : 0;
  const In* from = static_cast<const In*>(z.from) +
                   (static_cast<std::int64_t>(image) * z.groups + group) * z.channels * z.area +
                   static_cast<std::int64_t>(first_channel + channel) * z.area + first_pixel +
                   pixel;
  let_next_kernel_start();
  wait_for_previous_kernel();
  In values[kChannels / kStep];
#pragma unroll
  for (int i = 0; i < kChannels / kStep; ++i, from += static_cast<std::int64_t>(kStep) * z.area) {
    values[i] = i * kStep < left ? *from : In{};
  }
#pragma unroll
  for (int i = 0; i < kChannels / kStep; ++i) {
    tile[(channel + i * kStep) * kRow + pixel] = values[i];
  }
  float scale = 1;
  if constexpr (sizeof(In) == 4) scale = power_of_two(read_exponent(z.maxima));
  if (z.unscale != nullptr && block_x + block_y == 0 && threadIdx.x < 32) write_unscale(z);
  __syncthreads();
  const int first_piece = first_channel / kPieceElements;
  const int piece = thread % kPieces;
  if (first_piece + piece >= z.pieces) return;
  const int pixel_pieces = z.groups * z.pieces;
  uint4* const to = z.to +
                    (static_cast<std::int64_t>(image) * z.area + first_pixel) * pixel_pieces +
                    group * z.pieces + first_piece + piece;
#pragma unroll
  for (int i = 0; i < kPixels * kPieces / 256; ++i) {
    const int to_pixel = thread / kPieces + i * (256 / kPieces);
    if (first_pixel + to_pixel >= z.area) return;
    In column[kPieceElements];
#pragma unroll
    for (int c = 0; c < kPieceElements; ++c) {
      column[c] = tile[(piece * kPieceElements + c) * kRow + to_pixel];
    }
    write_piece<In, kPlanes>(column, scale, to + to_pixel * pixel_pieces, z.plane);
  }
}

// Block (x, y) as above.
template <class In, int kPlanes, int kChannelsLog2>
__global__ __launch_bounds__(256) void pack_pixels_kernel(const PackPixels z) {
  __shared__ In tile[pack_tile(kChannelsLog2)];
  pack_pixels<In, kPlanes, kChannelsLog2>(z, static_cast<int>(blockIdx.x),
                                          static_cast<int>(blockIdx.y), tile);
}

// The same for a block number that counts y first.
template <class In, int kPlanes, int kChannelsLog2>
__device__ inline void pack_pixels(const PackPixels& z, int block, In* tile) {
  const int wide = z.groups * ceil_div(z.pieces, (1 << kChannelsLog2) / kPieceElements);
  pack_pixels<In, kPlanes, kChannelsLog2>(z, block / wide, block % wide, tile);
}

// Kernel: packs two tensors. Blocks with blockIdx.x below `blocks_of_first` pack the first tensor,
// the following blocks the second.
template <class In, int kPlanes, int kChannelsLog2>
__global__ __launch_bounds__(256) void pack_two_kernel(const __grid_constant__ PackPixels first,
                                                       const __grid_constant__ PackPixels second,
                                                       int blocks_of_first) {
  __shared__ In tile[pack_tile(kChannelsLog2)];
  const int block = static_cast<int>(blockIdx.x);
  block < blocks_of_first
      ? pack_pixels<In, kPlanes, kChannelsLog2>(first, block, tile)
      : pack_pixels<In, kPlanes, kChannelsLog2>(second, block - blocks_of_first, tile);
}

// Packs NHWC images without reordering their elements. Each thread packs one piece.
template <int kPlanes>
__global__ void pack_last_pixels_kernel(const PackPixels z, std::int64_t pieces) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  const float scale = power_of_two(read_exponent(z.maxima));
  if (z.unscale != nullptr && blockIdx.x == 0 && threadIdx.x < 32) write_unscale(z);
  for (std::int64_t i = global_thread(); i < pieces; i += global_threads()) {
    const float4* const from = static_cast<const float4*>(z.from) + 2 * i;
    const float4 low = from[0], high = from[1];
    const float values[kPieceElements] = {low.x,  low.y,  low.z,  low.w,
                                          high.x, high.y, high.z, high.w};
    write_piece<float, kPlanes>(values, scale, z.to + i, z.plane);
  }
}

// ---- sums of the parts of a split --------------------------------------------------------------

struct Finish {  // y = relu(sum + b + residual), each part if requested
  const void* bias = nullptr;
  const void* residual = nullptr;
  bool relu = false;
};

// Adds bias (f32) and residual to eight sums of adjacent channels of NHWC images, and stores the
// results to their piece of `out`. Only the first `left` channels exist; the remaining sums are
// unchanged.
template <class Out>
__device__ inline void finish_piece(const Finish& z, float (&sums)[kPieceElements], int channel,
                                    int left, void* out, std::int64_t piece_at) {
  if (z.bias != nullptr) {
    const float* const bias = static_cast<const float*>(z.bias) + channel;
#pragma unroll
    for (int l = 0; l < kPieceElements; ++l) sums[l] += l < left ? bias[l] : 0.0f;
  }
  if (z.residual != nullptr) {
    float beside[kPieceElements];
    if constexpr (sizeof(Out) == 2) {
      floats_of_piece<Out>(static_cast<const uint4*>(z.residual)[piece_at], beside);
    } else {
#pragma unroll
      for (int l = 0; l < kPieceElements; ++l) {
        beside[l] = static_cast<const float*>(z.residual)[piece_at * kPieceElements + l];
      }
    }
#pragma unroll
    for (int l = 0; l < kPieceElements; ++l) sums[l] += beside[l];
  }
#pragma unroll
  for (int l = 0; l < kPieceElements; ++l) sums[l] = finished(sums[l], z.relu);
  if constexpr (sizeof(Out) == 2) {
    static_cast<uint4*>(out)[piece_at] = piece_of_floats<Out>(sums);
  } else {
    float4* const to = static_cast<float4*>(out) + 2 * piece_at;
    to[0] = make_float4(sums[0], sums[1], sums[2], sums[3]);
    to[1] = make_float4(sums[4], sums[5], sums[6], sums[7]);
  }
}

// parts [split][pixels][lanes], `count` elements each; out is NHWC.
template <class Out>
__global__ void sum_parts_nhwc_kernel(const float* parts, int splits, std::int64_t count,
                                               int lanes, int channels, const Finish end,
                                               void* out) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  const std::int64_t pieces = count / kPieceElements;
  for (std::int64_t i = global_thread(); i < pieces; i += global_threads()) {
    float sums[kPieceElements] = {};
#pragma unroll 4
    for (int split = 0; split < splits; ++split) {
      const auto* const part =
          reinterpret_cast<const float4*>(parts + split * count + i * kPieceElements);
      const float4 low = part[0], high = part[1];
      const float all[kPieceElements] = {low.x,  low.y,  low.z,  low.w,
                                         high.x, high.y, high.z, high.w};
#pragma unroll
      for (int l = 0; l < kPieceElements; ++l) sums[l] += all[l];
    }
    const int channel = static_cast<int>(i % (lanes / kPieceElements)) * kPieceElements;
    finish_piece<Out>(end, sums, channel, channels - channel, out, i);
  }
}

template <class Out>
__device__ inline float finish(const Finish& z, float sum, int channel, std::int64_t at) {
  if (z.bias != nullptr) sum += to_float(static_cast<const Out*>(z.bias)[channel]);
  return finished(sum, static_cast<const Out*>(z.residual), at, z.relu);
}

template <class Out>
__global__ void sum_parts_kernel(const float* parts, int splits, std::int64_t count, int area,
                                 int channels, const Finish end, Out* out) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  for (std::int64_t i = global_thread(); i < count; i += global_threads()) {
    float sum = 0;
#pragma unroll 16
    for (int split = 0; split < splits; ++split) sum += parts[split * count + i];
    out[i] = from_float<Out>(finish<Out>(end, sum, static_cast<int>(i / area % channels), i));
  }
}

}  // namespace convscope::half_tiles
