// SPDX-License-Identifier: Apache-2.0
// direct_cuda_forward.cuh: the kernel that computes a tile of y in registers, from x and w in
// shared memory. direct_cuda.cu explains the method.
// Read next  direct_cuda_tiles.h; direct_cuda_data.cuh
#pragma once

#include "framework/cuda/async_copy.cuh"
#include "framework/cuda/launch.cuh"
#include "layers/conv2d/direct/cuda/direct_cuda_tiles.h"
#include "layers/conv2d/epilogue.cuh"

namespace convscope::direct_cuda {

__device__ inline void load_four(const float* from, float* to) {
  const float4 v = *reinterpret_cast<const float4*>(from);
  to[0] = v.x;
  to[1] = v.y;
  to[2] = v.z;
  to[3] = v.w;
}
template <int kFloats>
__device__ inline void load_row(const float* from, float (&to)[kFloats]) {
#pragma unroll
  for (int i = 0; i < kFloats; i += 4) load_four(from + i, to + i);
}

// Copies a patch of an image [channels][h][w], from row `top` and column `left` on, to shared
// memory. Elements outside the image become 0. kFloats = 4 requires 16-byte aligned rows, and left
// and w that are multiples of 4.
template <int kFloats>
__device__ inline void copy_patch(const float* from, int channels, int h, int w, int top, int left,
                                  const Patch& patch, float* to) {
  const int count = channels * patch.rows * patch.by_columns.d;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    const int line = patch.by_columns.divide(i);
    const int j = i - line * patch.by_columns.d;
    const int c = patch.by_rows.divide(line);
    const int row = top + line - c * patch.rows;
    const int column = left + j * kFloats;
    const bool inside = row >= 0 && row < h && column >= 0 && column < w;
    const float* const at = from + static_cast<std::int64_t>(c * h + row) * w + column;
    async_copy<4 * kFloats>(to + line * patch.pitch + j * kFloats, inside ? at : from, inside);
  }
}

// The weights w[out][in][tap]. With `rotated`, taps are in reverse order. To compute dx, the
// forward kernel gets dy, rotated taps, and `out` and `in` exchanged.
struct WeightView {
  const float* w = nullptr;
  int out_step = 1, in_step = 1;
  bool rotated = false;
};

struct ForwardPointers {
  const float* x = nullptr;
  WeightView w;
  const float* b = nullptr;         // may be null
  const float* residual = nullptr;  // may be null
  bool relu = false;
  bool by_fours = false;  // rows of y and of the residual are 16-byte aligned
  float* y = nullptr;
};

// Applies the epilogue to a thread's 8 x 8 outputs and stores them.
__device__ inline void store_outputs(const DirectShape& z, const ForwardPointers& at, int n, int k,
                                     int p, int q, const float (&sums)[kPixels]) {
  const float bias = at.b == nullptr ? 0.0f : at.b[k];
  const std::int64_t offset = ((static_cast<std::int64_t>(n) * z.k + k) * z.p + p) * z.q + q;
  float out[kPixels];
#pragma unroll
  for (int i = 0; i < kPixels; ++i) {
    out[i] = sums[i] + bias;
    out[i] = finished(out[i], q + i < z.q ? at.residual : nullptr, offset + i, at.relu);
  }
  if (at.by_fours) {
#pragma unroll
    for (int i = 0; i < kPixels; i += 4) {
      if (q + i < z.q) {
        *reinterpret_cast<float4*>(at.y + offset + i) =
            make_float4(out[i], out[i + 1], out[i + 2], out[i + 3]);
      }
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kPixels; ++i) {
    if (q + i < z.q) at.y[offset + i] = out[i];
  }
}

template <int R, int kStride>
__global__ void __launch_bounds__(kBlockThreads, 2)
    forward_tile_kernel(const DirectShape z, const ForwardTiles t, const ForwardPointers at) {
  constexpr int kTaps = R * R;
  constexpr int kWindow = window_floats(R, kStride);
  float* const x_buffer = dynamic_shared<float>();
  float* const w_buffer = x_buffer + 2 * t.x_floats;
  const int thread = static_cast<int>(threadIdx.x);
  const int k_lane = thread % t.k_lanes;
  const int column = thread / t.k_lanes % t.columns;
  const int row = thread / t.k_lanes / t.columns;
  const bool works = row < t.rows;
  const int k_tile = t.k_tile();
  const int k_first = static_cast<int>(blockIdx.y) * k_tile;
  // A thread's channels are two runs of four, so that neighbouring threads load whole cache lines.
  const int k_half = k_tile / 2;
  const int plane = t.x_rows * t.x_pitch;
  const int tiles_image = t.tiles_p * t.tiles_q;
  const int tiles = z.n * tiles_image;
  const int own_tiles = ceil_div(tiles - static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
  const int steps = own_tiles * t.chunks;

  const auto begin_step = [&](int step) {
    if (step < steps) {
      const int chunk = step % t.chunks;
      const int tile = static_cast<int>(blockIdx.x) + step / t.chunks * static_cast<int>(gridDim.x);
      const int n = tile / tiles_image;
      const int tile_p = (tile - n * tiles_image) / t.tiles_q;
      const int tile_q = tile % t.tiles_q;
      const int c_first = chunk * t.depth;
      const int c_count = least(t.depth, z.c - c_first);
      const float* const image = at.x + (static_cast<std::int64_t>(n) * z.c + c_first) * z.h * z.w;
      copy_patch<1>(image, c_count, z.h, z.w, tile_p * t.rows * kStride - z.pad_top,
                    tile_q * t.columns * kPixels * kStride - z.pad_left, t.x,
                    x_buffer + step % 2 * t.x_floats);
      if (t.chunks > 1 || step == 0) {
        float* const to = w_buffer + (t.chunks > 1 ? step % 2 : 0) * t.w_floats;
        for (int i = thread; i < k_tile * c_count * kTaps; i += kBlockThreads) {
          const int k = c_count == t.depth ? t.by_weights.divide(i) : i / (c_count * kTaps);
          const int rest = i - k * c_count * kTaps;
          const int c = rest / kTaps;
          const int tap = rest - c * kTaps;
          const bool inside = k_first + k < z.k;
          const std::int64_t from = static_cast<std::int64_t>(k_first + k) * at.w.out_step +
                                    static_cast<std::int64_t>(c_first + c) * at.w.in_step +
                                    (at.w.rotated ? kTaps - 1 - tap : tap);
          async_copy<4>(to + rest * t.w_pitch + k, inside ? at.w.w + from : at.w.w, inside);
        }
      }
    }
    async_copy_commit();
  };

  float sums[kChannels][kPixels] = {};
  begin_step(0);
  for (int step = 0; step < steps; ++step) {
    begin_step(step + 1);
    async_copy_wait<1>();
    __syncthreads();
    const int chunk = step % t.chunks;
    if (works) {
      const int c_count = least(t.depth, z.c - chunk * t.depth);
      const float* x =
          x_buffer + step % 2 * t.x_floats + row * kStride * t.x_pitch + column * kPixels * kStride;
      const float* w = w_buffer + (t.chunks > 1 ? step % 2 : 0) * t.w_floats + k_lane * 4;
      for (int c = 0; c < c_count; ++c, x += plane) {
#pragma unroll 1
        for (int r = 0; r < R; ++r) {
          float window[kWindow];
          load_row(x + r * t.x_pitch, window);
#pragma unroll
          for (int s = 0; s < R; ++s, w += t.w_pitch) {
            float factor[kChannels];
            load_four(w, factor);
            load_four(w + k_half, factor + 4);
#pragma unroll
            for (int j = 0; j < kChannels; ++j) {
#pragma unroll
              for (int i = 0; i < kPixels; ++i) sums[j][i] += factor[j] * window[i * kStride + s];
            }
          }
        }
      }
      if (chunk == t.chunks - 1) {
        const int tile =
            static_cast<int>(blockIdx.x) + step / t.chunks * static_cast<int>(gridDim.x);
        const int n = tile / tiles_image;
        const int p = (tile - n * tiles_image) / t.tiles_q * t.rows + row;
        const int q = (tile % t.tiles_q * t.columns + column) * kPixels;
#pragma unroll
        for (int j = 0; j < kChannels; ++j) {
          const int k = k_first + (j < 4 ? 0 : k_half) + k_lane * 4 + j % 4;
          if (p < z.p && q < z.q && k < z.k) store_outputs(z, at, n, k, p, q, sums[j]);
#pragma unroll
          for (int i = 0; i < kPixels; ++i) sums[j][i] = 0;
        }
      }
    }
    __syncthreads();
  }
  async_copy_wait<0>();
}

}  // namespace convscope::direct_cuda
