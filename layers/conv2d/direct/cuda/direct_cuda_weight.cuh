// SPDX-License-Identifier: Apache-2.0
// direct_cuda_weight.cuh: the kernel that accumulates dw over a slice of the rows of y, with rows
// of x and dy in shared memory. direct_cuda.cu explains the method.
// Read next  direct_cuda_forward.cuh
#pragma once

#include "layers/conv2d/direct/cuda/direct_cuda_forward.cuh"

namespace convscope::direct_cuda {

// Writes the results of each slice to sums [slice][K][C][R][R].
template <int R, int kStride>
__global__ void __launch_bounds__(kBlockThreads, 2)
    weight_tile_kernel(const DirectShape z, const WeightTiles t, const float* x, const float* dy,
                       bool by_fours, float* sums) {
  constexpr int kKernelRows = R == 3 ? 3 : 1;
  constexpr int kWindow = round_up(3 * kStride + R, 4);
  float* const buffers = dynamic_shared<float>();
  const int thread = static_cast<int>(threadIdx.x);
  const int threads = static_cast<int>(blockDim.x);
  const int split = thread / t.items;
  const int item = thread - split * t.items;
  const bool works = split < t.splits;
  const int r_first = item % (R / kKernelRows) * kKernelRows;
  const int rest = item / (R / kKernelRows);
  const int c = rest % t.c_tile;
  const int group = rest / t.c_tile;
  const int k_first = static_cast<int>(blockIdx.y) % t.tiles_k * t.k_tile();
  const int c_first = static_cast<int>(blockIdx.y) / t.tiles_k * t.c_tile;
  const int c_count = least(t.c_tile, z.c - c_first);
  const int k_count = least(t.k_tile(), z.k - k_first);
  const std::int64_t rows = static_cast<std::int64_t>(z.n) * z.p;
  const std::int64_t row_begin = rows * blockIdx.x / gridDim.x;
  const int own_rows = static_cast<int>(rows * (blockIdx.x + 1) / gridDim.x - row_begin);
  const int steps = own_rows * t.pieces;
  const int buffer_floats = t.x_floats + t.dy_floats;

  const auto begin_step = [&](int step) {
    if (step < steps) {
      const std::int64_t at = row_begin + step / t.pieces;
      const int n = static_cast<int>(at / z.p);
      const int p = static_cast<int>(at - static_cast<std::int64_t>(n) * z.p);
      const int q = step % t.pieces * t.columns;
      float* const to = buffers + step % 2 * buffer_floats;
      copy_patch<1>(x + (static_cast<std::int64_t>(n) * z.c + c_first) * z.h * z.w, c_count, z.h,
                    z.w, p * kStride - z.pad_top, q * kStride - z.pad_left, t.x, to);
      float* const gradients = to + t.x_floats;
      const float* const line =
          dy + ((static_cast<std::int64_t>(n) * z.k + k_first) * z.p + p) * z.q + q;
      const std::int64_t plane = static_cast<std::int64_t>(z.p) * z.q;
      if (by_fours) {
        for (int i = thread; i < t.k_tile() * t.fours; i += threads) {
          const int k = t.by_fours.divide(i);
          const int column = 4 * (i - k * t.fours);
          const bool inside = k < k_count && q + column < z.q;
          async_copy<16>(gradients + k * t.dy_pitch + column,
                         inside ? line + k * plane + column : dy, inside);
        }
      } else {
        for (int i = thread; i < t.k_tile() * t.columns; i += threads) {
          const int k = t.by_columns.divide(i);
          const int column = i - k * t.columns;
          const bool inside = k < k_count && q + column < z.q;
          async_copy<4>(gradients + k * t.dy_pitch + column,
                        inside ? line + k * plane + column : dy, inside);
        }
      }
    }
    async_copy_commit();
  };

  float acc[kChannels][kKernelRows][R] = {};
  // Zeroes both buffers. The copies write only channels that x has, so the other channels stay 0.
  for (int i = thread; i < 2 * buffer_floats; i += threads) buffers[i] = 0.0f;
  __syncthreads();
  begin_step(0);
  for (int step = 0; step < steps; ++step) {
    begin_step(step + 1);
    async_copy_wait<1>();
    __syncthreads();
    if (works) {
      const float* const own_x = buffers + step % 2 * buffer_floats + (c * R + r_first) * t.x_pitch;
      const float* const own_dy =
          buffers + step % 2 * buffer_floats + t.x_floats + group * kChannels * t.dy_pitch;
      for (int four = split; four < t.fours; four += t.splits) {
        float window[kKernelRows][kWindow];
#pragma unroll
        for (int r = 0; r < kKernelRows; ++r) {
          load_row(own_x + r * t.x_pitch + 4 * four * kStride, window[r]);
        }
#pragma unroll
        for (int j = 0; j < kChannels; ++j) {
          float gradient[4];
          load_four(own_dy + j * t.dy_pitch + 4 * four, gradient);
#pragma unroll
          for (int r = 0; r < kKernelRows; ++r) {
#pragma unroll
            for (int s = 0; s < R; ++s) {
#pragma unroll
              for (int i = 0; i < 4; ++i) acc[j][r][s] += gradient[i] * window[r][i * kStride + s];
            }
          }
        }
      }
    }
    __syncthreads();
  }
  async_copy_wait<0>();
  // Several threads (splits) have accumulators of the same weights. Adds them in a fixed order, for
  // one output channel at a time.
  constexpr int kSums = kKernelRows * R;
  const std::int64_t weights = static_cast<std::int64_t>(z.k) * z.c * R * R;
  float* const own_sums = sums + static_cast<std::int64_t>(blockIdx.x) * weights;
#pragma unroll
  for (int j = 0; j < kChannels; ++j) {
    if (t.splits > 1) {
      __syncthreads();
      if (works && split > 0) {
#pragma unroll
        for (int i = 0; i < kSums; ++i) buffers[thread * kSums + i] = acc[j][i / R][i % R];
      }
      __syncthreads();
    }
    const int k = k_first + group * kChannels + j;
    if (split != 0 || k >= z.k || c >= c_count) continue;
    float* const to =
        own_sums + (static_cast<std::int64_t>(k) * z.c + c_first + c) * R * R + r_first * R;
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      float sum = acc[j][i / R][i % R];
      for (int other = 1; other < t.splits; ++other) {
        sum += buffers[(other * t.items + item) * kSums + i];
      }
      to[i] = sum;
    }
  }
}

// Sets dw[i], or with `accumulate` adds to it, the sum of sums[slice][i] over the slices. A block
// has 32 elements, and its 8 warps share the slices.
static __global__ void __launch_bounds__(kBlockThreads)
    add_slices_kernel(const float* sums, std::int64_t count, int slices, bool accumulate,
                      float* dw) {
  constexpr int kWarps = kBlockThreads / 32;
  __shared__ float parts[kWarps][32];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * 32 + lane;
  float sum = 0;
  if (i < count) {
#pragma unroll 4
    for (int slice = warp; slice < slices; slice += kWarps) sum += sums[slice * count + i];
  }
  parts[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || i >= count) return;
  for (int j = 1; j < kWarps; ++j) sum += parts[j][lane];
  dw[i] = accumulate ? dw[i] + sum : sum;
}

}  // namespace convscope::direct_cuda
