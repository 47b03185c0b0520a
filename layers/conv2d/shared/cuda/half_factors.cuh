// SPDX-License-Identifier: Apache-2.0
// half_factors.cuh: makes the factors of a product of halves from an f32 image that lies as the
// product reads it: the largest finite magnitude, then one pass that scales and rounds.
// Read next  layers/dispatch/layout/half_factors.h; half_pack.cuh, the same from planes
#pragma once

#include <cstdint>

#include "layers/conv2d/shared/cuda/half_pack.cuh"
#include "layers/dispatch/layout/half_factors.h"

namespace convscope::half_tiles {

// The head of the block: the scale, and 256 bytes behind it the maxima.
inline constexpr std::size_t kMaximaAt = 256;
static_assert(kMaximaAt + kMaximaBlocks * sizeof(unsigned) <= kHalfFactorsHead);

constexpr int kPackedAtOnce = 4;

// A thread takes pieces of eight numbers. The loads of the first ones do not wait for the scale.
template <int kAtOnce>
__global__ __launch_bounds__(kThreads) void pack_factors_kernel(const float4* x,
                                                                std::int64_t pieces, Maxima maxima,
                                                                float* scale_to, uint4* halves) {
  const std::int64_t step = global_threads();
  let_next_kernel_start();
  wait_for_previous_kernel();
  float scale = 0;
  bool known = false;
  // All threads of a warp take as many rounds, because read_exponent() needs all lanes.
  for (std::int64_t first = global_thread() - threadIdx.x % 32; first < pieces;
       first += kAtOnce * step) {
    const std::int64_t i = first + threadIdx.x % 32;
    float4 low[kAtOnce], high[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      if (i + j * step >= pieces) continue;
      low[j] = x[2 * (i + j * step)];
      high[j] = x[2 * (i + j * step) + 1];
    }
    if (!known) scale = power_of_two(read_exponent(maxima));
    known = true;
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      if (i + j * step >= pieces) continue;
      const float values[kPieceHalves] = {low[j].x,  low[j].y,  low[j].z,  low[j].w,
                                          high[j].x, high[j].y, high[j].z, high[j].w};
      write_piece<float, 1>(values, scale, halves + i + j * step, 0);
    }
  }
  if (global_thread() == 0) *scale_to = scale;
}

// Those of `count` numbers, into the head of a block of half factors.
inline Maxima find_maxima(const float* x, std::int64_t count, void* block) {
  auto* const bits = reinterpret_cast<unsigned*>(static_cast<std::byte*>(block) + kMaximaAt);
  const Maxima maxima{bits, maxima_blocks(count)};
  launch(maxima_kernel<kMaximaThreads>,
         {.grid = dim3(static_cast<unsigned>(maxima.count)),
          .block = dim3(kMaximaThreads),
          .overlaps_previous = true},
         x, count, maxima.count, static_cast<const float*>(nullptr), std::int64_t{0}, bits);
  return maxima;
}

// x: `count` numbers, a multiple of 8; block: half_factors_bytes(count).
inline HalfFactors pack_half_factors(const float* x, std::int64_t count, void* block) {
  const Maxima maxima = find_maxima(x, count, block);
  const HalfFactors out = half_factors_in(block);
  LaunchShape shape = grid_for(ceil_div(count / kPieceHalves, kPackedAtOnce));
  shape.overlaps_previous = true;
  launch(pack_factors_kernel<kPackedAtOnce>, shape, reinterpret_cast<const float4*>(x),
         count / kPieceHalves, maxima, static_cast<float*>(block),
         static_cast<uint4*>(const_cast<void*>(out.halves)));
  return out;
}

}  // namespace convscope::half_tiles
