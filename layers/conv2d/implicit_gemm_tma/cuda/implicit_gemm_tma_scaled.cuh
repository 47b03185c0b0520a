// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_tma_scaled.cuh: the kernels before and after the products of scaled fp16 operands
// (tf32). One kernel stores f32 weights as fp16 with a scale. If the reduction is split, another
// kernel adds the partial sums of the f32 result.
// Read next  implicit_gemm_tma_floats.cuh; layers/dispatch/layout/half_operands.h
#pragma once

#include <cstdint>

#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_gather.cuh"
#include "layers/conv2d/shared/cuda/half_operands.cuh"

namespace convscope::implicit_gemm_tma {

// ---- weights -----------------------------------------------------------------------------------

inline constexpr int kTransposedFloats = 4096;  // elements that a block transposes in shared memory

// Returns how many channels a block packs: whole 16-byte pieces, with all taps.
inline int transposed_channels(int channels, int kernel) {
  const int most =
      kTransposedFloats / kernel / half_tiles::kPieceElements * half_tiles::kPieceElements;
  return channels < most ? channels : most;
}
static_assert(kTransposedFloats >= kMaxTaps * kMaxTaps * half_tiles::kPieceElements);

// Packs w [K,C,R,S] times the scale as f16 [K][R S][channels], with zeros after the last channel.
// Block (x: channels, y: k) reads w in memory order and transposes it in shared memory.
template <int kThreadCount>
__global__ __launch_bounds__(kThreadCount) void pack_scaled_weights_kernel(
    const float* w, int channels, int real_channels, int kernel, int width,
    half_tiles::Maxima maxima, float* scale_to, uint4* packed) {
  constexpr int kPiece = half_tiles::kPieceElements;
  __shared__ float transposed[kTransposedFloats];  // [c][tap]
  const int thread = static_cast<int>(threadIdx.x);
  const int first_c = static_cast<int>(blockIdx.x) * width;
  const std::int64_t k = blockIdx.y;
  const int here = min(width, channels - first_c);
  const int real = min(here, real_channels - first_c) * kernel;
  const float* const from = w + (k * real_channels + first_c) * kernel;
  let_next_kernel_start();
  wait_for_previous_kernel();
  for (int i = thread; i < here * kernel; i += kThreadCount)
    transposed[i] = i < real ? from[i] : 0.0f;
  const float scale = half_tiles::power_of_two(half_tiles::read_exponent(maxima));
  if (thread == 0 && blockIdx.x + blockIdx.y == 0) *scale_to = scale;
  __syncthreads();
  const int pieces = here / kPiece;
  for (int i = thread; i < pieces * kernel; i += kThreadCount) {
    const int tap = i / pieces;
    const int piece = i - tap * pieces;
    float values[kPiece];
#pragma unroll
    for (int c = 0; c < kPiece; ++c) values[c] = transposed[(piece * kPiece + c) * kernel + tap];
    half_tiles::write_piece<float, 1>(
        values, scale, packed + (k * kernel + tap) * (channels / kPiece) + first_c / kPiece + piece,
        0);
  }
}

// ---- results -----------------------------------------------------------------------------------

// Computes y: adds the parts of a split reduction in order, multiplies by 2^e, applies the
// epilogue. A thread takes 4 channels.
template <class Out>
__global__ void sum_gathered_floats_kernel(const __grid_constant__ Gather z) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  const int unscale =
      z.pixels_scale == nullptr ? 0 : unscale_exponent(*z.pixels_scale, *z.weights_scale);
  const std::int64_t fours = z.out_count / 4;
  const int in_pixel = z.out_channels / 4;
  for (std::int64_t i = global_thread(); i < fours; i += global_threads()) {
    float y[4] = {};
#pragma unroll 8
    for (int part = 0; part < z.splits; ++part) {
      const float4 more = *reinterpret_cast<const float4*>(z.parts + part * z.out_count + i * 4);
      y[0] += more.x, y[1] += more.y, y[2] += more.z, y[3] += more.w;
    }
    times_power_of_two(unscale, y);
    const int channel = static_cast<int>(i % in_pixel) * 4;
    float4 more = make_float4(0, 0, 0, 0);
    if (z.residual != nullptr) more = static_cast<const float4*>(z.residual)[i];
    const float residual[4] = {more.x, more.y, more.z, more.w};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (z.bias != nullptr && channel + e < z.bias_channels) {
        y[e] += static_cast<const float*>(z.bias)[channel + e];
      }
      if (z.residual != nullptr) y[e] += residual[e];
      y[e] = finished(y[e], z.relu);
    }
    static_cast<float4*>(z.out)[i] = make_float4(y[0], y[1], y[2], y[3]);
  }
}

}  // namespace convscope::implicit_gemm_tma
