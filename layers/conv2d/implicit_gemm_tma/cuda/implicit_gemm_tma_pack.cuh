// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_tma_pack.cuh: packs weights [K,C,R,S] as fp16/bf16 [K][R S][C rounded up], which
// TMA loads in boxes of channels. A block reads whole rows of C R S elements, one after the other,
// transposes them in shared memory, and writes 8 channels at once.
// Read next  implicit_gemm_tma_run_cuda.cu
#pragma once

#include <algorithm>
#include <cstdint>

#include "framework/cuda/half.cuh"
#include "framework/cuda/launch.cuh"
#include "framework/int_math.h"

namespace convscope::implicit_gemm_tma {

constexpr int kPackThreads = 192;    // 64 channels of 3x3 are 144 reads of four elements
constexpr int kPackedElements = 6144;  // elements of a block, in shared memory
constexpr int kPackedGoal = 2048;    // elements per block, so that there are many blocks

// A block packs `rows` output channels with `width` input channels each. `pitch` is the distance of
// two taps in shared memory, chosen so that four taps use different banks.
struct PackShape {
  int k = 0, real_channels = 0, channels = 0, kernel = 1;
  int width = 8, pitch = 16, rows = 1;
  bool fours = false;  // w can be read four elements at a time
  FastDivisor by_kernel, by_row, by_eights;

  PackShape(int k_, int real_channels_, int channels_, int kernel_, bool aligned)
      : k(k_), real_channels(real_channels_), channels(channels_), kernel(kernel_) {
    const int most = kPackedElements / kernel - 8;
    width = std::min({channels, 256, std::max(8, most / 8 * 8)});
    pitch = width + 8;
    if (width == channels) {
      rows = std::clamp(
          std::min(kPackedElements / (kernel * pitch), kPackedGoal / (kernel * real_channels)), 1,
          k);
    }
    fours = aligned && static_cast<std::int64_t>(real_channels) * kernel % 4 == 0;
    by_kernel = FastDivisor(kernel);
    by_row = FastDivisor(std::min(width, real_channels) * kernel);
    by_eights = FastDivisor(width / 8);
  }
  int blocks_of_channels() const { return ceil_div(channels, width); }
  int blocks_of_rows() const { return ceil_div(k, rows); }
};

template <class In>
struct alignas(4 * sizeof(In)) FourNumbers {  // one read
  In at[4];
};

// Kernel: block x is some input channels, y some output channels.
template <class In, class Half>
__global__ __launch_bounds__(kPackThreads) void pack_weights_kernel(
    const In* __restrict__ w, const __grid_constant__ PackShape z, Half* packed) {
  __shared__ __align__(16) Half transposed[kPackedElements];  // [row][tap][channel]
  let_next_kernel_start();
  wait_for_previous_kernel();
  const int thread = static_cast<int>(threadIdx.x);
  const int first_c = static_cast<int>(blockIdx.x) * z.width;
  const int first_k = static_cast<int>(blockIdx.y) * z.rows;
  const int here = min(z.width, z.channels - first_c);  // a multiple of 8
  const int real = min(here, z.real_channels - first_c);
  const int rows = min(z.rows, z.k - first_k);
  const int row_numbers = real * z.kernel;
  const int row_elements = z.kernel * z.pitch;
  // Reads one row, or several whole rows.
  const In* const from =
      w + (static_cast<std::int64_t>(first_k) * z.real_channels + first_c) * z.kernel;
  const auto place = [&](int number, In value) {
    const int row = rows == 1 ? 0 : z.by_row.divide(number);
    const int row_element = number - row * row_numbers;
    const int c = z.by_kernel.divide(row_element);
    transposed[row * row_elements + (row_element - c * z.kernel) * z.pitch + c] =
        from_float<Half>(to_float(value));
  };
  const int numbers = rows * row_numbers;
  if (z.fours) {
#pragma unroll 3
    for (int i = thread; i < numbers / 4; i += kPackThreads) {
      const FourNumbers<In> four = reinterpret_cast<const FourNumbers<In>*>(from)[i];
#pragma unroll
      for (int e = 0; e < 4; ++e) place(4 * i + e, four.at[e]);
    }
  } else {
    for (int i = thread; i < numbers; i += kPackThreads) place(i, from[i]);
  }
  if (real < here) {
    for (int i = thread; i < rows * z.kernel * (here - real); i += kPackThreads) {
      const int row = i / (here - real);
      transposed[row * z.pitch + real + i - row * (here - real)] = from_float<Half>(0.0f);
    }
  }
  __syncthreads();
  const int eights = here / 8;
  for (int i = thread; i < rows * z.kernel * eights; i += kPackThreads) {
    const int row = here == z.width ? z.by_eights.divide(i) : i / eights;  // index of a row of taps
    const int c = (i - row * eights) * 8;
    *reinterpret_cast<uint4*>(
        packed + (static_cast<std::int64_t>(first_k) * z.kernel + row) * z.channels + first_c + c) =
        *reinterpret_cast<const uint4*>(transposed + row * z.pitch + c);
  }
}

// Packs kernels of many taps (kManyTaps). Shared memory keeps the elements in memory order, and a
// thread picks the eight channels of a tap from there. Neighbouring lanes take neighbouring taps,
// so they use different banks for loads and for stores.
constexpr int kManyTaps = 10;
constexpr int kManyNumbers = 6144;  // elements of a block
constexpr int kManyGoal = 3072;
constexpr int kManyThreads = 256;

struct ManyTapsShape {
  int real_channels = 0, channels = 0, kernel = 1, width = 8;
  FastDivisor by_two_taps;

  ManyTapsShape(int real_channels_, int channels_, int kernel_)
      : real_channels(real_channels_), channels(channels_), kernel(kernel_) {
    width = std::min(channels, std::max(8, kManyGoal / kernel / 8 * 8));
    by_two_taps = FastDivisor(2 * kernel);
  }
  int blocks_of_channels() const { return ceil_div(channels, width); }
};

// Kernel: blockIdx.x selects z.width input channels, blockIdx.y one output channel.
template <class In, class Half>
__global__ __launch_bounds__(kManyThreads) void pack_many_taps_kernel(
    const In* __restrict__ w, const __grid_constant__ ManyTapsShape z, Half* packed) {
  __shared__ float numbers[kManyNumbers];  // [channel][tap]
  let_next_kernel_start();
  wait_for_previous_kernel();
  const int thread = static_cast<int>(threadIdx.x);
  const int first_c = static_cast<int>(blockIdx.x) * z.width;
  const std::int64_t k = blockIdx.y;
  const int here = min(z.width, z.channels - first_c);  // a multiple of 8
  const int real = max(min(here, z.real_channels - first_c), 0) * z.kernel;
  const In* const from = w + (k * z.real_channels + first_c) * z.kernel;
#pragma unroll 4
  for (int i = thread; i < here * z.kernel; i += kManyThreads) {
    numbers[i] = i < real ? to_float(from[i]) : 0.0f;
  }
  __syncthreads();
  // Two 8-channel pieces of a tap are adjacent in memory and together fill a whole sector.
  const int pieces = here / 8;
  for (int i = thread; i < ceil_div(pieces, 2) * 2 * z.kernel; i += kManyThreads) {
    const int pair = z.by_two_taps.divide(i);
    const int rest = i - pair * 2 * z.kernel;
    const int tap = rest / 2;
    const int piece = 2 * pair + rest % 2;
    if (piece >= pieces) continue;
    const float* const tap_values = numbers + piece * 8 * z.kernel + tap;
    unsigned words[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      words[c] =
          pair_from_floats<Half>(tap_values[2 * c * z.kernel], tap_values[(2 * c + 1) * z.kernel]);
    }
    *reinterpret_cast<uint4*>(packed + (k * z.kernel + tap) * z.channels + first_c + piece * 8) =
        make_uint4(words[0], words[1], words[2], words[3]);
  }
}

// Packs with one thread per element. With so few weights (kFewWeights), transposing takes longer
// than single reads.
template <class In, class Half>
__global__ void pack_few_weights_kernel(const In* w, std::int64_t count, int channels,
                                        int real_channels, int kernel, Half* packed) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  for (std::int64_t i = global_thread(); i < count; i += global_threads()) {
    const int c = static_cast<int>(i % channels);
    const std::int64_t row = i / channels;
    const std::int64_t k = row / kernel;
    packed[i] =
        c < real_channels
            ? from_float<Half>(to_float(w[(k * real_channels + c) * kernel + (row - k * kernel)]))
            : from_float<Half>(0.0f);
  }
}

}  // namespace convscope::implicit_gemm_tma
