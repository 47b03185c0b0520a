// SPDX-License-Identifier: Apache-2.0
// channel_sums.cuh: loops over NHWC images [pixels][pieces], and sums over all pixels for each
// channel. A piece is 16 bytes: eight fp16/bf16 channels or four f32 channels.
//
// Method    A block has 256 threads. They cover up to eight adjacent pieces of consecutive pixels,
//           so a warp reads lines of 128 bytes or more. A thread processes the same piece in up to
//           64 pixels (more only in tensors with billions of elements), with several loads in
//           flight. The threads with the same piece add their sums. Each block writes its sums to
//           an array of partial sums ("parts"), and a second, small launch adds the parts in order.
// Numerics  A thread sums up to 64 elements in f32. The sums of the threads of a block are added
//           pairwise in f32, and the partial sums of the blocks in double. The division of work
//           depends only on the sizes, so two runs give the same bits.
// Choices   About 528 blocks, which are 4 per SM of an H100 or H200. So a thread has enough pixels
//           to amortise the sum over the block, and there are few parts. 32 threads per channel add
//           the parts: each adds about ten, with all loads in flight.
#pragma once

#include "framework/cuda/half_piece.cuh"
#include "framework/cuda/scratch.cuh"
#include "framework/shape.h"

namespace convscope {

// kLanes: channels per piece.
template <int kLanes>
struct PieceWalk {
  static constexpr int kAtOnce = 4;  // pixels whose loads a thread has in flight
  static constexpr int kMaxPixels = 64;
  static constexpr int kFinishers = 8;

  std::int64_t pixels = 0, split_pixels = 0;
  int pieces = 0;
  int width_log2 = 0;  // adjacent pieces in a block
  int splits = 1;

  PieceWalk() = default;
  // x is [N,1,H,W,Cp]
  explicit PieceWalk(const Shape& x)
      : pixels(x[0] * x[2] * x[3]), pieces(static_cast<int>(x[4]) / kLanes) {
    while (width_log2 < 3 && (1 << width_log2) < pieces) ++width_log2;
    const std::int64_t wanted = ceil_div(528, grid_width());
    std::int64_t each = ceil_div(ceil_div(pixels, wanted), rows());
    each = round_up(each < kMaxPixels ? each : kMaxPixels, kAtOnce);
    const auto parts = [&] { return ceil_div(pixels, each * rows()); };
    while (parts() > 65535 || parts() * pieces * kLanes * 8 > (std::int64_t{4} << 20)) {
      each *= 2;
    }
    split_pixels = each * rows();
    splits = static_cast<int>(parts());
  }
  __host__ __device__ int rows() const { return static_cast<int>(kThreads) >> width_log2; }
  int grid_width() const { return ceil_div(pieces, 1 << width_log2); }
  __host__ __device__ int lanes() const { return pieces * kLanes; }  // per pixel

  LaunchShape shape() const {
    return {.grid = dim3(static_cast<unsigned>(grid_width()), static_cast<unsigned>(splits)),
            .block = dim3(kThreads),
            .overlaps_previous = true};
  }
  // Returns the launch shape of kernels that add the blocks' partial sums (parts). Each block of
  // such a kernel handles kFinishers channels.
  LaunchShape finish_shape() const {
    return {.grid = dim3(static_cast<unsigned>(ceil_div(lanes(), kFinishers))),
            .block = dim3(kThreads),
            .overlaps_previous = true};
  }
  std::size_t part_floats(int sums) const {
    return static_cast<std::size_t>(splits) * static_cast<std::size_t>(sums * lanes());
  }

  // ---- inside kernels ----
  __device__ int piece() const {
    return static_cast<int>(blockIdx.x << width_log2 | (threadIdx.x & ((1u << width_log2) - 1)));
  }
  __device__ bool is_idle() const { return piece() >= pieces; }
  // Calls use(pixel, load(pixel)) for every pixel of this thread.
  template <class Load, class Use>
  __device__ void run_pixels(const Load& load, const Use& use) const {
    if (is_idle()) return;
    const std::int64_t begin = blockIdx.y * split_pixels;
    const std::int64_t end = begin + split_pixels < pixels ? begin + split_pixels : pixels;
    const std::int64_t step = rows();
    for (std::int64_t first = begin + (threadIdx.x >> width_log2); first < end;
         first += step * kAtOnce) {
      decltype(load(std::int64_t{0})) values[kAtOnce];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        if (first + u * step < end) values[u] = load(first + u * step);
      }
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        if (first + u * step < end) use(first + u * step, values[u]);
      }
    }
  }
  // Calls use(index, load(index)) for every piece of this thread. `index` is the index of the piece
  // in x.
  template <class Load, class Use>
  __device__ void run(const Load& load, const Use& use) const {
    const int own = piece();
    const auto place = [&](std::int64_t pixel) { return pixel * pieces + own; };
    run_pixels([&](std::int64_t pixel) { return load(place(pixel)); },
               [&](std::int64_t pixel, const auto& value) { use(place(pixel), value); });
  }

  // Adds `sums` over this block's threads, and writes the block's partial sums to part
  // [split][sum][lane]. All threads call it.
  template <int kSums>
  __device__ void put_part(float (&sums)[kSums][kLanes], float* part) const {
    __shared__ float scratch[kThreads / 32][kSums][8 * kLanes];
    const int width = 1 << width_log2;
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int s = 0; s < kSums; ++s) {
#pragma unroll
      for (int l = 0; l < kLanes; ++l) {
        for (int offset = 16; offset >= width; offset /= 2) {
          sums[s][l] += __shfl_xor_sync(kAllLanes, sums[s][l], offset);
        }
        if (lane < width) scratch[threadIdx.x / 32][s][lane * kLanes + l] = sums[s][l];
      }
    }
    __syncthreads();
    const int own = width * kLanes;
    for (int i = static_cast<int>(threadIdx.x); i < kSums * own; i += kThreads) {
      const int s = i / own;
      const int channel = i - s * own;
      const int to = static_cast<int>(blockIdx.x) * own + channel;
      if (to >= lanes()) continue;
      float sum = 0;
#pragma unroll
      for (unsigned w = 0; w < kThreads / 32; ++w) sum += scratch[w][s][channel];
      part[(static_cast<std::int64_t>(blockIdx.y) * kSums + s) * lanes() + to] = sum;
    }
  }

  // Returns the channel of this thread in a kernel with finish_shape().
  __device__ int channel() const {
    return static_cast<int>(blockIdx.x) * kFinishers + static_cast<int>(threadIdx.x) % kFinishers;
  }
  // Returns true for the one thread per channel to which add_parts() returns the sums.
  __device__ static bool is_finisher() { return threadIdx.x < kFinishers; }
  // Adds the blocks' partial sums of this thread's channel in double. All threads call it.
  template <int kSums>
  __device__ void add_parts(const float* part, double (&out)[kSums]) const {
    constexpr int kRows = kThreads / kFinishers;
    __shared__ double scratch[kRows][kSums][kFinishers];
    const int row = static_cast<int>(threadIdx.x) / kFinishers;
    const int own_channel = static_cast<int>(threadIdx.x) % kFinishers;
    double own[kSums] = {};
    if (channel() < lanes()) {
#pragma unroll 8
      for (int split = row; split < splits; split += kRows) {
#pragma unroll
        for (int s = 0; s < kSums; ++s) {
          own[s] += static_cast<double>(
              part[(static_cast<std::int64_t>(split) * kSums + s) * lanes() + channel()]);
        }
      }
    }
#pragma unroll
    for (int s = 0; s < kSums; ++s) scratch[row][s][own_channel] = own[s];
    __syncthreads();
    if (!is_finisher()) return;
#pragma unroll
    for (int s = 0; s < kSums; ++s) {
      out[s] = 0;
      for (int r = 0; r < kRows; ++r) out[s] += scratch[r][s][own_channel];
    }
  }
};

// For images stored as T.
template <class T>
using WalkOf = PieceWalk<kLanesOf<T>>;
using ChannelWalk = PieceWalk<kPieceLanes>;  // fp16/bf16

}  // namespace convscope
