// SPDX-License-Identifier: Apache-2.0
// winograd_kernels.cuh: the kernels of Winograd's convolution F(M x M, 3 x 3) on a GPU, and the
// planes that they cut into tiles. winograd_cuda.cu explains the algorithm and calls them;
// winograd_f4x3_fp16x3_cuda.cu calls some of them, too.
//
// Read next  winograd_transforms.cuh; winograd_cuda.cu
#pragma once

#include <algorithm>
#include <climits>

#include "framework/cuda/launch.cuh"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/epilogue.cuh"
#include "layers/conv2d/winograd/cuda/winograd_transforms.cuh"

namespace convscope::winograd {

using Index = std::int64_t;

constexpr Index kTileStep = 32;  // chunks and slots are multiples: a warp, a cache line
constexpr Index kChunkBytes = Index{400} << 20;  // V and M of a chunk
constexpr Index kManyWeights = 1 << 16;          // K C/G: two waves of threads, one for each
constexpr Index kMaxSum = 256;           // channels that one product sums; longer sums are split
constexpr unsigned kChannelsOfBlock = 8;  // a block is 32 tiles x 8 channels

// Planes that are cut into tiles of M x M outputs (of `out`). A tile reads SIDE x SIDE pixels of
// `in` from M * tile + offset on, and 0 outside.
struct Planes {
  int channels;
  int in_h, in_w, out_h, out_w;
  int top, left;  // offset
  int tiles_h, tiles_w;
  Index tiles;  // of all images

  Planes(int m, Index n, Index c, Index ih, Index iw, Index oh, Index ow, Index t, Index l)
      : channels(int(c)),
        in_h(int(ih)),
        in_w(int(iw)),
        out_h(int(oh)),
        out_w(int(ow)),
        top(int(t)),
        left(int(l)),
        tiles_h(int(ceil_div(oh, m))),
        tiles_w(int(ceil_div(ow, m))),
        tiles(n * tiles_h * tiles_w) {}
};

// ---- kernels -----------------------------------------------------------------------------------

// Transforms inputs to V (SIDE = M + 2, MatrixB) or dy to D (SIDE = M, MatrixA), for tiles first ..
// first + count, in slots of `slot` tiles. Results after the last tile are 0.
template <int M, class Matrix>
__global__ void __launch_bounds__(256)
    transform_kernel(Planes z, Index first, int count, int slot, const float* x, float* v) {
  constexpr int kT = M + 2;
  constexpr int kSide = Matrix::kColumns;
  const int t = static_cast<int>(blockIdx.x * 32 + threadIdx.x);
  if (t >= count) return;
  const Index tile = first + t;
  const bool real = tile < z.tiles;
  const int image_tile = static_cast<int>(tile % (z.tiles_h * z.tiles_w));
  const Index n = tile / (z.tiles_h * z.tiles_w);
  const int top = image_tile / z.tiles_w * M + z.top;
  const int left = image_tile % z.tiles_w * M + z.left;
  unsigned columns = 0;  // bit s: column s is inside
#pragma unroll
  for (int s = 0; s < kSide; ++s) {
    if (left + s >= 0 && left + s < z.in_w) columns |= 1u << s;
  }
  for (int c = static_cast<int>(blockIdx.y * kChannelsOfBlock + threadIdx.y); c < z.channels;
       c += static_cast<int>(gridDim.y * kChannelsOfBlock)) {
    const float* const plane = x + (n * z.channels + c) * (Index{z.in_h} * z.in_w);
    float d[kSide * kSide];
#pragma unroll
    for (int r = 0; r < kSide; ++r) {
      const bool inside = real && top + r >= 0 && top + r < z.in_h;
      const float* const row = plane + Index{top + r} * z.in_w + left;
#pragma unroll
      for (int s = 0; s < kSide; ++s) {
        d[r * kSide + s] = inside && (columns >> s & 1u) != 0 ? row[s] : 0.0f;
      }
    }
    float out[kT * kT];
    transform<kT, Matrix>(d, out);
    float* const to = v + (Index{t / slot} * kT * kT * z.channels + c) * slot + t % slot;
#pragma unroll
    for (int i = 0; i < kT * kT; ++i) to[Index{i} * z.channels * slot] = out[i];
  }
}

// Computes outputs from M [P][group][part][channels/G][count], adds bias and residual, then applies
// relu, each if requested.
template <int M>
__global__ void __launch_bounds__(256, 2)
    output_kernel(Planes z, Index first, int count, int group_channels, int parts, const float* m,
                  const float* b, const float* residual, bool relu, bool aligned, float* y) {
  constexpr int kT = M + 2;
  const int t = static_cast<int>(blockIdx.x * 32 + threadIdx.x);
  const Index tile = first + t;
  if (t >= count || tile >= z.tiles) return;
  const int image_tile = static_cast<int>(tile % (z.tiles_h * z.tiles_w));
  const Index n = tile / (z.tiles_h * z.tiles_w);
  const int top = image_tile / z.tiles_w * M;
  const int left = image_tile % z.tiles_w * M;
  for (int c = static_cast<int>(blockIdx.y * kChannelsOfBlock + threadIdx.y); c < z.channels;
       c += static_cast<int>(gridDim.y * kChannelsOfBlock)) {
    const Index row = Index{c / group_channels} * parts * group_channels + c % group_channels;
    const float* const from = m + row * count + t;
    float points[kT * kT];
#pragma unroll
    for (int i = 0; i < kT * kT; ++i) points[i] = from[Index{i} * z.channels * parts * count];
#pragma unroll 1
    for (int part = 1; part < parts; ++part) {
      const float* const more = from + Index{part} * group_channels * count;
#pragma unroll
      for (int i = 0; i < kT * kT; ++i) points[i] += more[Index{i} * z.channels * parts * count];
    }
    float out[M * M];
    transform_back<kT, MatrixA<M>>(points, out);
    const float bias = b == nullptr ? 0.0f : b[c];
    const Index at =
        (n * z.channels + c) * (Index{z.out_h} * z.out_w) + Index{top} * z.out_w + left;
#pragma unroll
    for (int r = 0; r < M; ++r) {
      if (top + r >= z.out_h) break;
      const Index begin = at + Index{r} * z.out_w;
      float value[M];
#pragma unroll
      for (int s = 0; s < M; ++s) {
        value[s] = out[r * M + s] + bias;
        value[s] = finished(value[s], left + s < z.out_w ? residual : nullptr, begin + s, relu);
      }
      if (M == 4 && aligned) {
        *reinterpret_cast<float4*>(y + begin) =
            make_float4(value[0], value[1], value[M - 2], value[M - 1]);
      } else if (M == 2 && aligned) {
        *reinterpret_cast<float2*>(y + begin) = make_float2(value[0], value[1]);
      } else {
#pragma unroll
        for (int s = 0; s < M; ++s) {
          if (left + s < z.out_w) y[begin + s] = value[s];
        }
      }
    }
  }
}

// Transforms w [G K/G][C/G][3][3] to U [P][G][part][K/G][C/G / parts]. `parts` is 1 in
// backward_data, where parts are rows of U and thus contiguous.
template <int M>
__global__ void weights_kernel(const float* w, Index count, int kernels, int channels, int parts,
                               bool flip, float* u) {
  constexpr int kT = M + 2;
  const Index i = global_thread();
  if (i >= count) return;
  float g[9];
#pragma unroll
  for (int tap = 0; tap < 9; ++tap) g[tap] = w[i * 9 + (flip ? 8 - tap : tap)];
  float out[kT * kT];
  transform<kT, MatrixG<M>>(g, out);
  const int c = static_cast<int>(i % channels);
  const int k = static_cast<int>(i / channels % kernels);
  const int width = channels / parts;
  const Index at = ((i / channels / kernels * parts + c / width) * kernels + k) * width + c % width;
#pragma unroll
  for (int point = 0; point < kT * kT; ++point) u[point * count + at] = out[point];
}

// Computes dw [count][3][3] from S [slot][P][count], a thread for each weight. Used for many
// weights.
template <int M>
__global__ void __launch_bounds__(128)
    gradient_of_many_kernel(const float* s, int slots, Index count, bool accumulate, float* dw) {
  constexpr int kT = M + 2;
  wait_for_previous_kernel();
  const Index i = global_thread();
  if (i >= count) return;
  float points[kT * kT];
#pragma unroll
  for (int point = 0; point < kT * kT; ++point) points[point] = s[point * count + i];
#pragma unroll 1
  for (int slot = 1; slot < slots; ++slot) {
    const float* const more = s + Index{slot} * kT * kT * count + i;
#pragma unroll
    for (int point = 0; point < kT * kT; ++point) points[point] += more[point * count];
  }
  float out[9];
  transform_back<kT, MatrixG<M>>(points, out);
#pragma unroll
  for (int tap = 0; tap < 9; ++tap) dw[i * 9 + tap] = out[tap] + (accumulate ? dw[i * 9 + tap] : 0);
}

// Computes dw like the kernel above, for few weights or without any image. A block adds the slots
// of 32 weights; each warp takes some points, and the first warp transforms the sums.
constexpr unsigned kGradientWarps = 8;
template <int M>
__global__ void gradient_kernel(const float* s, int slots, Index count, bool accumulate,
                                float* dw) {
  constexpr int kT = M + 2;
  __shared__ float sums[kT * kT * 32];
  wait_for_previous_kernel();
  const int lane = static_cast<int>(threadIdx.x);
  const Index i = static_cast<Index>(blockIdx.x) * 32 + lane;
  for (int point = static_cast<int>(threadIdx.y); point < kT * kT;
       point += static_cast<int>(kGradientWarps)) {
    float sum = 0;
    const float* from = s + point * count + i;
#pragma unroll 4
    for (int slot = 0; slot < slots; ++slot, from += kT * kT * count) sum += i < count ? *from : 0;
    sums[point * 32 + lane] = sum;
  }
  __syncthreads();
  if (threadIdx.y != 0 || i >= count) return;
  float points[kT * kT];
#pragma unroll
  for (int point = 0; point < kT * kT; ++point) points[point] = sums[point * 32 + lane];
  float out[9];
  transform_back<kT, MatrixG<M>>(points, out);
#pragma unroll
  for (int tap = 0; tap < 9; ++tap) dw[i * 9 + tap] = out[tap] + (accumulate ? dw[i * 9 + tap] : 0);
}

inline Conv2dSupport supports_3x3(const Conv2dProblem& z, Direction) {
  const auto no = [](const auto&... words) { return Conv2dSupport::no(cat(words...)); };
  if (z.dtype != DType::f32) {
    return no("expects elements of type f32, because its sums cancel digits that ",
              name_of(z.dtype), " does not have");
  }
  if (z.r != 3 || z.s != 3) return no("expects a kernel of 3x3, got ", z.r, "x", z.s);
  if (z.stride_h != 1 || z.stride_w != 1) {
    return no("expects stride 1, got ", z.stride_h, "x", z.stride_w);
  }
  if (z.dilation_h != 1 || z.dilation_w != 1) {
    return no("expects dilation 1, got ", z.dilation_h, "x", z.dilation_w);
  }
  if (z.h * z.w > INT_MAX / 2 || z.p() * z.q() > INT_MAX / 2 || z.k * z.c > INT_MAX / 64) {
    return no("expects planes of fewer than 2^30 pixels and 2^25 kernels' planes, got more");
  }
  return {};
}

}  // namespace convscope::winograd
