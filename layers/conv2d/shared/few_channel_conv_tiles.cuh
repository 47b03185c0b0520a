// SPDX-License-Identifier: Apache-2.0
// few_channel_conv_tiles.cuh: the inner loops of convolutions of few channels: a tile of a
// convolution, and the sums of a weight gradient, from shared memory into registers.
// Read next  few_channel_conv_forward_cuda.cu; few_channel_conv_backward_cuda.cu
#pragma once

#include "framework/cuda/async_copy.cuh"
#include "framework/cuda/half.cuh"
#include "framework/cuda/launch.cuh"
#include "layers/conv2d/shared/few_channel_conv.h"

namespace convscope::few_channel {

// Returns true for a half type: operands are rounded to it, but stored as f32.
template <class Factor>
constexpr bool rounds() {
  return !std::is_same_v<Factor, float>;
}
template <class Factor>
__device__ inline float as_factor(float value) {
  if constexpr (rounds<Factor>()) value = rounded<Factor>(value);
  return value;
}

__device__ inline void load_four(const float* from, float* to) {
  const float4 v = *reinterpret_cast<const float4*>(from);
  to[0] = v.x;
  to[1] = v.y;
  to[2] = v.z;
  to[3] = v.w;
}
__device__ inline void store_four(const float* from, float* to) {
  *reinterpret_cast<float4*>(to) = make_float4(from[0], from[1], from[2], from[3]);
}
template <int kFloats>
__device__ inline void load_row(const float* from, float (&to)[kFloats]) {
#pragma unroll
  for (int i = 0; i < kFloats; i += 4) load_four(from + i, to + i);
}

// acc[j][row][column] += sum over channels, r, s of x[row + r][column + s] w[j][r][s] for a tile of
// 2 x 4 outputs. x points to the tile's first pixel, w to the first output channel. kRotated: with
// w[R-1-r][R-1-s], which is the gradient of x; there rows outside [row_begin, row_end), counted
// from the tile's first one, are zeros that are not in memory.
//
// Each row of x is loaded once and used for two kernel rows, each weight once for 8 products. For
// 7x7 kernels the loop over rows is not unrolled. A block runs it only a few times, so fetching the
// unrolled instructions would take longer than the register moves that unrolling saves.
template <int R, int kChannels, bool kRotated>
__device__ inline void convolve_tile(const float* x, int pitch, int plane, int channels,
                                     const float* w, int w_in, int w_out, int row_begin,
                                     int row_end,
                                     float (&acc)[kChannels][kTileRows][kTileColumns]) {
  constexpr int kRow = row_floats(R);
  constexpr int kWeights = weight_row(R);
  const auto load = [&](int row, float(&to)[kRow]) {
    if (!kRotated || (row >= row_begin && row < row_end)) {
      load_row(x + row * pitch, to);
    } else {
#pragma unroll
      for (int i = 0; i < kRow; ++i) to[i] = 0.0f;
    }
  };
  for (int c = 0; c < channels; ++c) {
    float row[kRow];
    float below[kRow];
    load(0, row);
#pragma unroll(R < 7 ? R : 1)
    for (int r = 0; r < R; ++r) {
      load(r + 1, below);
      if (!kRotated || (r + 1 >= row_begin && r < row_end)) {
#pragma unroll
        for (int j = 0; j < kChannels; ++j) {
          float weights[kWeights];
          load_row(w + j * w_out + (kRotated ? R - 1 - r : r) * kWeights, weights);
#pragma unroll
          for (int s = 0; s < R; ++s) {
            const float factor = weights[kRotated ? R - 1 - s : s];
#pragma unroll
            for (int q = 0; q < kTileColumns; ++q) {
              acc[j][0][q] += factor * row[q + s];
              acc[j][1][q] += factor * below[q + s];
            }
          }
        }
      }
#pragma unroll
      for (int i = 0; i < kRow; ++i) row[i] = below[i];
    }
    x += plane;
    w += w_in;
  }
}

// Adds acc[j][s] += sum over pixels of dy[j][p][q] x[p + r][q + s], for pixels first, first + step,
// ... counted in groups of four columns. A row has by_fours.d groups. x points to row r of its
// channel, dy to the first output channel.
template <int R, int kChannels>
__device__ inline void weight_tile(const float* x, int x_pitch, const float* dy, int dy_pitch,
                                   const int (&dy_plane)[kChannels], const FastDivisor& by_fours,
                                   int fours, int first, int step, float (&acc)[kChannels][R]) {
  constexpr int kRow = row_floats(R);
  const int fours_w = by_fours.d;
  int p = by_fours.divide(first);
  int q = first - p * fours_w;
  const int step_p = by_fours.divide(step);
  const int step_q = step - step_p * fours_w;
#pragma unroll 1
  for (int i = first; i < fours; i += step) {
    float row[kRow];
    load_row(x + p * x_pitch + 4 * q, row);
    const float* const from = dy + p * dy_pitch + 4 * q;
#pragma unroll
    for (int j = 0; j < kChannels; ++j) {
      float gradient[kTileColumns];
      load_row(from + dy_plane[j], gradient);
#pragma unroll
      for (int s = 0; s < R; ++s) {
#pragma unroll
        for (int column = 0; column < kTileColumns; ++column) {
          acc[j][s] += gradient[column] * row[column + s];
        }
      }
    }
    p += step_p;
    q += step_q;
    if (q >= fours_w) {
      q -= fours_w;
      ++p;
    }
  }
}

__device__ inline float activation_of(FewChannelActivation activation, float value) {
  if (activation == FewChannelActivation::tanh) return tanhf(value);
  return activation == FewChannelActivation::relu && value <= 0.0f ? 0.0f : value;  // NaN stays NaN
}
// Returns the derivative of the activation, from y.
__device__ inline float activation_slope(FewChannelActivation activation, float y) {
  if (activation == FewChannelActivation::tanh) return 1.0f - y * y;
  return activation == FewChannelActivation::relu && y <= 0.0f ? 0.0f
                                                               : 1.0f;  // NaN passes, as in relu()
}

// Loads w [K][C][R][R] of kernels [k_begin, k_end) and each.d / R^2 channels from c_begin on, into
// rows of weight_row(R) floats. `to` has space for all K kernels. The copies are still in flight
// when the function returns.
template <int R>
__device__ inline void load_weights(const FewChannelStage& z, const FastDivisor& each,
                                    const float* w, int k_begin, int k_end, int c_begin,
                                    float* to) {
  const int pitch = weight_k(z, each.d / (R * R));
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < (k_end - k_begin) * each.d; i += kBlockThreads) {
    const int k = each.divide(i);
    const int rest = i - k * each.d;
    const int c = rest / (R * R);
    const int tap = rest - c * R * R;
    async_copy<4>(to + (k_begin + k) * pitch + c * weight_c(z) + tap / R * weight_row(R) + tap % R,
                  w + ((k_begin + k) * z.c + c_begin) * R * R + rest);
  }
}

// Loads images [C][H][W] of channels [c_begin, c_end) into tiles, the first of them at `to`: four
// pixels at once, where rows of x and the left padding are multiples of four. Its copies are still
// in flight when it returns.
__device__ inline void load_images(const FewChannelStage& z, const XTile& tile,
                                   const FastDivisor& by_w, const FastDivisor& by_image,
                                   const float* x, int c_begin, int c_end, float* to) {
  const int pixels = by_image.d;
  const int count = (c_end - c_begin) * pixels;
  x += c_begin * pixels;
  to += z.pad_top * tile.pitch + z.pad_left;
  if (z.w % 4 == 0 && z.pad_left % 4 == 0 && reinterpret_cast<std::uintptr_t>(x) % 16 == 0) {
#pragma unroll 1
    for (int i = 4 * static_cast<int>(threadIdx.x); i < count; i += 4 * kBlockThreads) {
      const int c = by_image.divide(i);
      const int row = by_w.divide(i - c * pixels);
      const int column = i - c * pixels - row * z.w;
      async_copy<16>(to + c * tile.plane() + row * tile.pitch + column, x + i);
    }
    return;
  }
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kBlockThreads) {
    const int c = by_image.divide(i);
    const int row = by_w.divide(i - c * pixels);
    const int column = i - c * pixels - row * z.w;
    async_copy<4>(to + c * tile.plane() + row * tile.pitch + column, x + i);
  }
}

// Calls body(index of the first byte, offset in the tile) for each four neighbouring pixels of a
// sample.
template <class Body>
__device__ inline void for_fours(const FewChannelStage& z, const XTile& tile,
                                 const FastDivisor& by_w, const FastDivisor& by_image,
                                 const Body& body) {
  const int pixels = by_image.d;
#pragma unroll 2
  for (int i = 4 * static_cast<int>(threadIdx.x); i < z.c * pixels; i += 4 * kBlockThreads) {
    const int c = by_image.divide(i);
    const int row = by_w.divide(i - c * pixels);
    const int column = i - c * pixels - row * z.w;
    body(i, c, c * tile.plane() + (z.pad_top + row) * tile.pitch + z.pad_left + column);
  }
}

// Gathers image n of a batch from its bytes into its tiles.
template <class Factor>
__device__ inline void gather_image(const BatchGather& g, const FewChannelStage& z,
                                    const XTile& tile, const FastDivisor& by_w,
                                    const FastDivisor& by_image, std::int64_t n, float* to) {
  const std::int32_t sample = g.order[*g.position + g.offset + n];
  const std::uint8_t* const from = g.images + std::int64_t{sample} * z.c * by_image.d;
  for_fours(z, tile, by_w, by_image, [&](int i, int c, int at) {
    const uchar4 pixels = *reinterpret_cast<const uchar4*>(from + i);
    const float* const level = g.levels + c * 256;
    float four[4] = {level[pixels.x], level[pixels.y], level[pixels.z], level[pixels.w]};
#pragma unroll
    for (int j = 0; j < 4; ++j) to[at + j] = as_factor<Factor>(four[j]);
  });
}
// Stores the gathered images from their tiles for later kernels, rounded as in the tiles.
__device__ inline void write_gathered(const BatchGather& g, const FewChannelStage& z,
                                      const XTile& tile, const FastDivisor& by_w,
                                      const FastDivisor& by_image, std::int64_t n,
                                      const float* tiles) {
  const std::int32_t sample = g.order[*g.position + g.offset + n];
  float* const to = g.x + n * z.c * by_image.d;
  for_fours(z, tile, by_w, by_image, [&](int i, int, int at) {
    *reinterpret_cast<float4*>(to + i) =
        make_float4(tiles[at], tiles[at + 1], tiles[at + 2], tiles[at + 3]);
  });
  if (threadIdx.x == 0) g.labels[n] = g.image_labels[sample];
}
// Results of the previous step. One thread of the grid reads these results early, while copies are
// in flight, and writes them late, so that no thread waits for them.
struct LastStep {
  float loss;
  std::int32_t correct, halted, overflow;
  double scale;
  std::int64_t good_steps, skipped;
};
__device__ inline void read_last_step(const BatchGather& g, LastStep* to) {
  if (g.noted_loss == nullptr) return;
  async_copy<4>(&to->loss, g.loss);
  async_copy<4>(&to->correct, g.correct);
  if (g.halted != nullptr) async_copy<4>(&to->halted, g.halted);
  if (g.loss_scale == nullptr) return;
  async_copy<4>(&to->overflow, &g.loss_scale->overflow);
  async_copy<8>(&to->scale, &g.loss_scale->state.scale);
  async_copy<8>(&to->good_steps, &g.loss_scale->state.good_steps);
  async_copy<8>(&to->skipped, &g.loss_scale->state.skipped);
}
__device__ inline void note_last_step(const BatchGather& g, const LastStep* step) {
  if (g.noted_loss == nullptr) return;
  *g.noted_loss = step->loss;
  *g.noted_correct = step->correct;
  const bool halts = g.halted != nullptr && !isfinite(step->loss);
  if (halts) *g.halted = 1;
  if (g.loss_scale == nullptr) return;
  LossScaleState next{
      .scale = step->scale, .good_steps = step->good_steps, .skipped = step->skipped};
  if (!halts && step->halted == 0) next.advance(step->overflow == 0);
  g.loss_scale->state = next;
  g.loss_scale->overflow = 0;
  *g.noted_scale = next;
}

// Waits for the copies of this thread; a barrier extends that to the block.
__device__ inline void finish_copies() {
  async_copy_commit();
  async_copy_wait<0>();
}

// Rounds shared memory in place, between two barriers of the caller. `to` is 16-byte aligned,
// `count` a multiple of 4.
template <class Factor>
__device__ inline void round_operands(float* to, int count) {
#pragma unroll 1
  for (int i = 4 * static_cast<int>(threadIdx.x); i < count; i += 4 * kBlockThreads) {
    float four[4];
    load_four(to + i, four);
#pragma unroll
    for (int j = 0; j < 4; ++j) four[j] = as_factor<Factor>(four[j]);
    store_four(four, to + i);
  }
}

// Fills with zeros. `to` and `count` must meet the requirements of round_operands().
__device__ inline void fill_zeros(float* to, int count) {
  const float zeros[4] = {};
#pragma unroll 1
  for (int i = 4 * static_cast<int>(threadIdx.x); i < count; i += 4 * kBlockThreads) {
    store_four(zeros, to + i);
  }
}

}  // namespace convscope::few_channel
