// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_tma_summed_moments.cuh: adds the parts of y (split-K), and computes mean and spread
// of y's channels for a batch norm from the stored values.
//
// Method    the walk of channel_sums.cuh over y. A block's shift is the value of its first pixel.
//           All threads that need the shift sum that pixel once more, one pixel compared with some
//           hundreds.
// Read next implicit_gemm_tma_moments.cuh; framework/cuda/channel_moments.cuh
#pragma once

#include "framework/cuda/channel_moments.cuh"
#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_gather.cuh"

namespace convscope::implicit_gemm_tma {

// Four channels of a pixel in f32, the result of scaled operands.
struct SummedPiece {
  uint4 stored;
  __device__ SummedPiece() = default;
  // Adds the parts of elements 4 at to 4 at + 3 of y, which are four channels from `channel` on.
  // Then undoes the scale and adds the bias.
  __device__ SummedPiece(const Gather& z, std::int64_t at, int channel, int unscale) {
    constexpr int kLanes = kLanesOf<float>;
    float y[kLanes] = {};
#pragma unroll 4
    for (int part = 0; part < z.splits; ++part) {
      const auto* const from =
          reinterpret_cast<const float4*>(z.parts + part * z.out_count + at * kLanes);
#pragma unroll
      for (int i = 0; i < kLanes / 4; ++i) {
        const float4 more = from[i];
        y[4 * i] += more.x, y[4 * i + 1] += more.y;
        y[4 * i + 2] += more.z, y[4 * i + 3] += more.w;
      }
    }
    times_power_of_two(unscale, y);
#pragma unroll
    for (int l = 0; l < kLanes; ++l) {
      if (z.bias == nullptr || channel + l >= z.bias_channels) continue;
      y[l] += static_cast<const float*>(z.bias)[channel + l];
    }
    stored = piece_of_floats<float>(y);
  }
};

__global__ inline void __launch_bounds__(kThreads)
    sum_with_moments_kernel(const __grid_constant__ Gather z, WalkOf<float> walk) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  constexpr int kLanes = kLanesOf<float>;
  const int channel = walk.piece() * kLanes;
  const int unscale = unscale_exponent(*z.pixels_scale, *z.weights_scale);
  float shift[kLanes] = {}, moments[kMomentSums][kLanes] = {};
  if (!walk.is_idle()) {
    const std::int64_t first = blockIdx.y * walk.split_pixels * walk.pieces + walk.piece();
    floats_of_piece<float>(SummedPiece(z, first, channel, unscale).stored, shift);
    if (threadIdx.x >> walk.width_log2 == 0) {  // one thread of a piece writes it
#pragma unroll
      for (int l = 0; l < kLanes; ++l) moments[1][l] = shift[l];
    }
  }
  walk.run([&](std::int64_t at) { return SummedPiece(z, at, channel, unscale); },
           [&](std::int64_t at, const SummedPiece& y) {
             static_cast<uint4*>(z.out)[at] = y.stored;
             float v[kLanes];
             floats_of_piece<float>(y.stored, v);
#pragma unroll
             for (int l = 0; l < kLanes; ++l) {
               const float off = v[l] - shift[l];
               moments[0][l] += 1;
               moments[2][l] += off;
               moments[3][l] += off * off;
             }
           });
  walk.put_part(moments, z.moments);
}

}  // namespace convscope::implicit_gemm_tma
