// SPDX-License-Identifier: Apache-2.0
// direct_cuda_data.cuh: the kernel that computes a tile of dx of few channels in registers, from dy
// and w in shared memory. At stride 2 it skips the zeros between elements of dy. direct_cuda.cu
// explains the method.
// Read next  direct_cuda_forward.cuh; direct_cuda_weight.cuh
#pragma once

#include "layers/conv2d/direct/cuda/direct_cuda_forward.cuh"

namespace convscope::direct_cuda {

constexpr int kDataThreads = 128;

// In padded coordinates h' = h + pad_top = p stride + r. A thread has rows 2 i, 2 i + 1 and columns
// 8 j .. 8 j + 7 of the tile. The tile begins at a multiple of the stride, so the pairs of (r, s)
// and pixel are known at compile time.
template <int R, int kStride, int kDataChannels>
__global__ void __launch_bounds__(kDataThreads, 3)
    data_tile_kernel(const DirectShape z, const DataTiles t, const float* dy, const float* w,
                     bool by_fours, float* dx) {
  constexpr int kTaps = R * R;
  constexpr int kBefore = (R - 1) / kStride;
  constexpr int kLeft = round_up(kBefore, 4);
  constexpr int kWindow = kLeft + kPixels / kStride;
  constexpr int kRows = kBefore + 2 / kStride;  // rows of dy that a thread reads
  float* const buffers = dynamic_shared<float>();
  const int thread = static_cast<int>(threadIdx.x);
  const int column = thread % t.columns;
  const int row = thread / t.columns;
  const int c_first = static_cast<int>(blockIdx.y) * kDataChannels;
  const int tiles_image = t.tiles_h * t.tiles_w;
  const int n = static_cast<int>(blockIdx.x) / tiles_image;
  const int tile = static_cast<int>(blockIdx.x) - n * tiles_image;
  const int tile_h = tile / t.tiles_w;
  const int tile_w = tile - tile_h * t.tiles_w;
  // The tile's first row and column in the padded image. The first tile begins where the padding
  // ends, rounded down: rows to a multiple of the stride, columns to four columns of dy.
  const int h_first = z.pad_top / kStride * kStride + tile_h * t.rows * 2;
  const int w_first = z.pad_left / (4 * kStride) * (4 * kStride) + tile_w * t.columns * kPixels;
  const int plane = t.dy_rows * t.dy_pitch;

  const auto begin_chunk = [&](int chunk) {
    if (chunk < t.chunks) {
      const int k_first = chunk * t.depth;
      const int k_count = least(t.depth, z.k - k_first);
      float* const to = buffers + chunk % 2 * t.dy_floats;
      const float* const from = dy + (static_cast<std::int64_t>(n) * z.k + k_first) * z.p * z.q;
      const int top = h_first / kStride - kBefore;
      const int left = w_first / kStride - kLeft;
      if (by_fours) {
        copy_patch<4>(from, k_count, z.p, z.q, top, left, t.dy_fours, to);
      } else {
        copy_patch<1>(from, k_count, z.p, z.q, top, left, t.dy, to);
      }
      float* const weights = to + t.depth * plane;
      for (int i = thread; i < k_count * 4 * kTaps; i += kDataThreads) {
        const int k = i / (4 * kTaps);
        const int c = (i - k * 4 * kTaps) / kTaps;
        const int tap = i % kTaps;
        const bool inside = c < kDataChannels && c_first + c < z.c;
        const int at = ((k_first + k) * z.c + c_first + c) * kTaps + tap;
        async_copy<4>(weights + (k * kTaps + tap) * 4 + c, inside ? w + at : w, inside);
      }
    }
    async_copy_commit();
  };

  float sums[kDataChannels][2][kPixels] = {};
  begin_chunk(0);
  for (int chunk = 0; chunk < t.chunks; ++chunk) {
    begin_chunk(chunk + 1);
    async_copy_wait<1>();
    __syncthreads();
    const int k_count = least(t.depth, z.k - chunk * t.depth);
    const float* const buffer = buffers + chunk % 2 * t.dy_floats;
    const float* from = buffer + row * 2 / kStride * t.dy_pitch + column * kPixels / kStride;
    const float* weights = buffer + t.depth * plane;
    for (int k = 0; k < k_count; ++k, from += plane, weights += t.w_floats) {
#pragma unroll
      for (int o = 0; o < kRows; ++o) {
        float window[kWindow];
        load_row(from + o * t.dy_pitch, window);
#pragma unroll
        for (int a = 0; a < 2; ++a) {
          const int r = a - kStride * (o - kBefore);
          if (r < 0 || r >= R) continue;
#pragma unroll
          for (int s = 0; s < R; ++s) {
            float factor[4];
            load_four(weights + (r * R + s) * 4, factor);
#pragma unroll
            for (int i = 0; i < kPixels; ++i) {
              if ((i - s + 8 * kStride) % kStride != 0) continue;
#pragma unroll
              for (int c = 0; c < kDataChannels; ++c) {
                sums[c][a][i] += factor[c] * window[kLeft + (i - s) / kStride];
              }
            }
          }
        }
      }
    }
    __syncthreads();
  }
  async_copy_wait<0>();
#pragma unroll
  for (int c = 0; c < kDataChannels; ++c) {
    if (c_first + c >= z.c) break;
#pragma unroll
    for (int a = 0; a < 2; ++a) {
      const int h = h_first + row * 2 + a - z.pad_top;
      if (h < 0 || h >= z.h) continue;
      const int first = w_first + column * kPixels - z.pad_left;
      float* const to = dx + ((static_cast<std::int64_t>(n) * z.c + c_first + c) * z.h + h) * z.w;
#pragma unroll
      for (int i = 0; i < kPixels; ++i) {
        if (first + i >= 0 && first + i < z.w) to[first + i] = sums[c][a][i];
      }
    }
  }
}

}  // namespace convscope::direct_cuda
