// SPDX-License-Identifier: Apache-2.0
// few_pixels_weight.cuh: the kernel of few_pixels. It computes dw of some channels from all pixels
// in one launch. few_pixels_plan.h defines piece, plane, fragment, step and share.
//
//   dy [rows][pixels]            row l/4 of a fragment, pixel l%4: pitches are 4 modulo 8 words, so
//   x  [channels][plane]         32 lanes meet 32 banks
//
//   for each piece:   copy a later piece (cp.async), wait for this one
//     for a warp's steps of 8 pixels:
//       split dy [16 x 8] once for all fragments, x [8 x 8] once for all rows
//       sums [16 x 8] += low * high + high * low + high * high
//   at the end: add the results of all shares in the order of dw, through shared memory
// Read next  few_pixels_cuda.cu, the algorithm
#pragma once

#include <cstdint>

#include "framework/cuda/async_copy.cuh"
#include "framework/cuda/launch.cuh"
#include "framework/cuda/tensor_cores/mma_tf32.cuh"
#include "layers/conv2d/few_pixels/cuda/few_pixels_plan.h"

namespace convscope::few_pixels {

// The operands. With x_by_four, an asynchronous copy of x moves four floats, otherwise one;
// dy_by_four is the same flag for dy. With dw_by_four, a store of dw writes four floats, otherwise
// one.
struct Operands {
  const float* x;
  const float* dy;
  float* dw;
  Spread x_spread, dy_spread;
  bool x_by_four, dy_by_four, dw_by_four, accumulate;
};

struct Piece {
  int image, images, line, pixels;
};
__device__ inline Piece piece_of(const FewPixelsParams& z, int index) {
  if (z.pieces_of_image == 1) {
    const int image = index * z.piece_images;
    const int images = min(z.piece_images, z.images - image);
    return {image, images, 0, images * z.out_height * z.out_width};
  }
  const int image = z.by_pieces_of_image.divide(index);
  const int line = (index - image * z.pieces_of_image) * z.piece_lines;
  return {image, 1, line, min(z.piece_lines, z.out_height - line) * z.out_width};
}

// Copies rows to shared memory, kWords words at a time. place(position) returns the offset of the
// words in a source row, or -1 to write zeros.
template <int kWords, class Place>
__device__ inline void copy_rows(const Spread& by, const float* from, int from_pitch, float* to,
                                 int to_pitch, int rows, const Place& place) {
  const int thread = static_cast<int>(threadIdx.x);
  const int group = by.by_lanes.divide(thread);
  if (group >= by.groups) return;
  for (int i = thread - group * by.lanes; i < by.positions; i += by.lanes) {
    const int at = place(i * kWords);
    const bool inside = at >= 0;
    const float* source = from + (inside ? at + group * from_pitch : 0);
    float* target = to + i * kWords + group * to_pitch;
    const int further = inside ? by.groups * from_pitch : 0;
#pragma unroll 4
    for (int row = group; row < rows; row += by.groups) {
      async_copy<4 * kWords, kWords == 1>(target, source, inside);
      source += further;
      target += by.groups * to_pitch;
    }
  }
}

__device__ inline void copy_piece(const FewPixelsParams& z, const Operands& of, const Piece& piece,
                                  int row, int channel, float* stage) {
  const int image_pixels = z.out_height * z.out_width;
  const auto pixel = [&](int i) {
    if (i >= piece.pixels) return -1;
    const int image = z.by_image_pixels.divide(i);
    return (piece.image + image) * z.out_channels * image_pixels + piece.line * z.out_width + i -
           image * z.by_image_pixels.d;
  };
  const int rows = min(z.rows, z.out_channels - row);
  const float* const dy = of.dy + row * image_pixels;
  if (of.dy_by_four) {
    copy_rows<4>(of.dy_spread, dy, image_pixels, stage, z.dy_pitch, rows, pixel);
  } else {
    copy_rows<1>(of.dy_spread, dy, image_pixels, stage, z.dy_pitch, rows, pixel);
  }
  const int area = z.height * z.width;
  const auto word = [&](int i) {
    const int image = z.by_plane_words.divide(i);
    const int in_plane = i - image * z.plane_words;
    const int line = z.by_line.divide(in_plane);
    const int h = z.row_of(line) + piece.line * z.stride_h;
    const int w = z.column_of(in_plane - line * z.line);
    const bool inside = image < piece.images && h >= 0 && h < z.height && w >= 0 && w < z.width;
    return inside ? (piece.image + image) * z.in_channels * area + h * z.width + w : -1;
  };
  const int channels = min(z.octets * kOctet, z.in_channels - channel);
  const float* const x = of.x + channel * area;
  float* const planes = stage + z.x_at;
  if (of.x_by_four) {
    copy_rows<4>(of.x_spread, x, area, planes, z.plane_pitch, channels, word);
  } else {
    copy_rows<1>(of.x_spread, x, area, planes, z.plane_pitch, channels, word);
  }
}

// Waits for the oldest of `stages` groups of asynchronous copies.
__device__ inline void wait_for_oldest(int stages) {
  switch (stages) {
    case 1:
      return async_copy_wait<0>();
    case 2:
      return async_copy_wait<1>();
    default:
      return async_copy_wait<kMaxStages - 1>();
  }
}

// Adds up the results that the shares left in shared memory, in a fixed order, and writes dw,
// `kWords` words at a time.
template <int kWords>
__device__ inline void store_sums(const FewPixelsParams& z, const Operands& of, const float* sums,
                                  int row, int channel) {
  struct alignas(4 * kWords) Words {
    float v[kWords];
  };
  const int columns = min(z.octets * kOctet, z.in_channels - channel) * z.taps;
  const int rows = min(z.rows, z.out_channels - row);
  const int length = z.in_channels * z.taps;
  float* const dw = of.dw + row * length + channel * z.taps;
  const int warps = static_cast<int>(blockDim.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  for (int r = static_cast<int>(threadIdx.x) / 32; r < rows; r += warps) {
#pragma unroll 2
    for (int i = lane * kWords; i < columns; i += 32 * kWords) {
      Words sum{};
      for (int share = 0; share < z.shares; ++share) {
        const auto part =
            *reinterpret_cast<const Words*>(sums + (share * z.rows + r) * z.sum_pitch + i);
        for (int j = 0; j < kWords; ++j) sum.v[j] += part.v[j];
      }
      auto& out = *reinterpret_cast<Words*>(dw + r * length + i);
      if (of.accumulate) {
        for (int j = 0; j < kWords; ++j) sum.v[j] += out.v[j];
      }
      out = sum;
    }
  }
}

template <int kRowTiles, int kFragments, bool kCuts, int kResident>
__global__ void __launch_bounds__(kMaxWarps * 32, kResident)
    weight_kernel(const __grid_constant__ FewPixelsParams z, const __grid_constant__ Operands of) {
  constexpr int kAtOnce = kFragments % 3 == 0 ? 3 : 2;  // fragments of x in registers
  static_assert(kFragments % kAtOnce == 0);
  float* const shared = dynamic_shared<float>();
  int* const table = reinterpret_cast<int*>(shared + z.table_at());
  const int block = static_cast<int>(blockIdx.x);
  const int channel_block = z.by_row_blocks.divide(block);
  const int first_row = (block - channel_block * z.row_blocks) * z.rows;
  const int first_channel = channel_block * z.octets * kOctet;
  let_next_kernel_start();

  // Stores byte offsets, so that an address takes one addition.
  for (int i = static_cast<int>(threadIdx.x); i < z.piece_pixels();
       i += static_cast<int>(blockDim.x)) {
    table[i] = 4 * z.window_at(i);
  }
  wait_for_previous_kernel();
  for (int stage = 0; stage < z.stages; ++stage) {
    copy_piece(z, of, piece_of(z, stage), first_row, first_channel, shared + stage * z.stage_words);
    async_copy_commit();
  }

  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int tiles = z.row_groups * z.column_groups;
  const int share = warp / tiles;
  const int row_group = (warp - share * tiles) / z.column_groups;
  const int first_fragment = (warp - share * tiles - row_group * z.column_groups) * kFragments;
  const int row = row_group * kRowTiles * kRows + lane / 4;  // of the tile
  int fragment_at[kFragments];
  {
    int octet = first_fragment / z.taps, tap = first_fragment - octet * z.taps;
#pragma unroll
    for (int f = 0; f < kFragments; ++f) {
      // Fragments after the last one repeat the first fragment; their results are not stored.
      fragment_at[f] = octet < z.octets ? 4 * (octet * kOctet * z.plane_pitch + z.tap_at[tap]) : 0;
      if (++tap == z.taps) tap = 0, ++octet;
    }
  }

  float sums[kRowTiles][kFragments][4] = {};
  float total[kCuts ? kRowTiles : 1][kCuts ? kFragments : 1][4] = {};
  int in_chain = 0;
  int step = share, stage = 0;
  for (int index = 0; index < z.pieces; ++index) {
    const Piece piece = piece_of(z, index);
    const int steps = ceil_div(piece.pixels, kStepPixels);
    wait_for_oldest(z.stages);
    __syncthreads();
    const float* const dy = shared + stage * z.stage_words + row * z.dy_pitch + lane % 4;
    const auto* const x = reinterpret_cast<const char*>(shared + stage * z.stage_words + z.x_at +
                                                        lane / 4 * z.plane_pitch);
    for (; step < steps; step += z.shares) {
      // After the last pixel dy is zero, and x is read from an existing pixel of the piece, so that
      // unused memory, which may contain infinity or NaN, cannot reach a result.
      const int pixel = step * kStepPixels + lane % 4;
      const char* const x0 = x + table[min(pixel, piece.pixels - 1)];
      const char* const x4 = x + table[min(pixel + 4, piece.pixels - 1)];
      float dy_high[kRowTiles][4], dy_low[kRowTiles][4];
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const HighLow v =
              high_low(dy[(m * kRows + i % 2 * 8) * z.dy_pitch + step * kStepPixels + i / 2 * 4]);
          dy_high[m][i] = v.high, dy_low[m][i] = v.low;
        }
      }
#pragma unroll
      for (int g = 0; g < kFragments; g += kAtOnce) {
        HighLow v[kAtOnce][2];
#pragma unroll
        for (int f = 0; f < kAtOnce; ++f) {
          v[f][0] = high_low(*reinterpret_cast<const float*>(x0 + fragment_at[g + f]));
          v[f][1] = high_low(*reinterpret_cast<const float*>(x4 + fragment_at[g + f]));
        }
        // Consecutive MMAs use different accumulators, because an MMA waits for the previous MMA on
        // the same accumulator.
#pragma unroll
        for (int f = 0; f < kAtOnce; ++f) {
#pragma unroll
          for (int m = 0; m < kRowTiles; ++m) {
            mma_tf32(sums[m][g + f], dy_low[m], v[f][0].high, v[f][1].high);
          }
        }
#pragma unroll
        for (int f = 0; f < kAtOnce; ++f) {
#pragma unroll
          for (int m = 0; m < kRowTiles; ++m) {
            mma_tf32(sums[m][g + f], dy_high[m], v[f][0].low, v[f][1].low);
          }
        }
#pragma unroll
        for (int f = 0; f < kAtOnce; ++f) {
#pragma unroll
          for (int m = 0; m < kRowTiles; ++m) {
            mma_tf32(sums[m][g + f], dy_high[m], v[f][0].high, v[f][1].high);
          }
        }
      }
      if constexpr (kCuts) {
        if (++in_chain == kChainSteps) {
          in_chain = 0;
#pragma unroll
          for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
            for (int f = 0; f < kFragments; ++f) {
#pragma unroll
              for (int i = 0; i < 4; ++i) total[m][f][i] += sums[m][f][i], sums[m][f][i] = 0;
            }
          }
        }
      }
    }
    step -= steps;  // the next piece continues with the next share
    if (index + z.stages < z.pieces) {
      __syncthreads();
      copy_piece(z, of, piece_of(z, index + z.stages), first_row, first_channel,
                 shared + stage * z.stage_words);
    }
    async_copy_commit();
    if (++stage == z.stages) stage = 0;
  }
  __syncthreads();

  float* const mine = shared + (share * z.rows + row) * z.sum_pitch + lane % 4 * 2 * z.taps;
  int octet = first_fragment / z.taps, tap = first_fragment - octet * z.taps;
#pragma unroll
  for (int f = 0; f < kFragments; ++f) {
    if (octet < z.octets) {
      float* const to = mine + octet * kOctet * z.taps + tap;
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          to[(m * kRows + i / 2 * 8) * z.sum_pitch + i % 2 * z.taps] =
              kCuts ? total[kCuts ? m : 0][kCuts ? f : 0][i] + sums[m][f][i] : sums[m][f][i];
        }
      }
    }
    if (++tap == z.taps) tap = 0, ++octet;
  }
  __syncthreads();
  if (of.dw_by_four) {
    store_sums<4>(z, of, shared, first_row, first_channel);
  } else {
    store_sums<1>(z, of, shared, first_row, first_channel);
  }
}

}  // namespace convscope::few_pixels
