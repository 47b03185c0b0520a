// SPDX-License-Identifier: Apache-2.0
// half_operands.cuh: makes fp16 operands of a product from an f32 image in the product's layout.
// It finds the largest finite magnitude, then scales and rounds in one pass.
// Read next  layers/dispatch/layout/half_operands.h; half_pack.cuh, the same from planes
#pragma once

#include <cstdint>

#include "layers/conv2d/shared/cuda/half_pack.cuh"
#include "layers/dispatch/layout/half_operands.h"

namespace convscope::half_tiles {

// The head of a block of operands has the scale, and 256 bytes later the maxima.
inline constexpr std::size_t kMaximaAt = 256;
inline constexpr int kHeadMaxima = static_cast<int>((kHalfOperandsHead - kMaximaAt) / 4);
// Maxima of each of two images that share a head.
inline constexpr int kMaximaOfTwo = 192;
static_assert(kMaximaBlocks <= kHeadMaxima && 2 * kMaximaOfTwo <= kHeadMaxima);

// An f32 image, the source of its scale, and the destination of its operands.
struct OperandsPack {
  const float4* image = nullptr;
  std::int64_t pieces = 0;  // pieces of eight elements
  Maxima maxima;
  float* scale = nullptr;
  uint4* fp16 = nullptr;

  OperandsPack() = default;
  OperandsPack(const float* from, std::int64_t count, const Maxima& of, void* block)
      : image(reinterpret_cast<const float4*>(from)),
        pieces(count / kPieceElements),
        maxima(of),
        scale(static_cast<float*>(block)),
        fp16(static_cast<uint4*>(const_cast<void*>(half_operands_in(block).fp16))) {}
  HalfOperands operands() const { return {fp16, scale}; }
};

constexpr int kPackedAtOnce = 4;

// Kernel: blockIdx.x selects pieces, blockIdx.y the image. The loads of the first pieces do not
// wait for the scale.
template <int kAtOnce>
__global__ __launch_bounds__(kThreads) void pack_operands_kernel(
    const __grid_constant__ OperandsPack first_image,
    const __grid_constant__ OperandsPack second_image) {
  const OperandsPack& z = blockIdx.y == 0 ? first_image : second_image;
  const std::int64_t step = global_threads();
  let_next_kernel_start();
  wait_for_previous_kernel();
  float scale = 0;
  bool known = false;
  // All lanes of a warp take equally many rounds, because read_exponent() needs all of them.
  for (std::int64_t first = global_thread() - threadIdx.x % 32; first < z.pieces;
       first += kAtOnce * step) {
    const std::int64_t i = first + threadIdx.x % 32;
    float4 low[kAtOnce], high[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      if (i + j * step >= z.pieces) continue;
      low[j] = z.image[2 * (i + j * step)];
      high[j] = z.image[2 * (i + j * step) + 1];
    }
    if (!known) scale = power_of_two(read_exponent(z.maxima));
    known = true;
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      if (i + j * step >= z.pieces) continue;
      const float values[kPieceElements] = {low[j].x,  low[j].y,  low[j].z,  low[j].w,
                                          high[j].x, high[j].y, high[j].z, high[j].w};
      write_piece<float, 1>(values, scale, z.fp16 + i + j * step, 0);
    }
  }
  if (global_thread() == 0) *z.scale = scale;
}

// Finds the maxima of `count` elements of x, and of a second array if given. Writes them into the
// head of a block of fp16 operands.
inline Maxima find_maxima(const float* x, std::int64_t count, void* block, int blocks,
                          const float* more = nullptr, std::int64_t more_count = 0,
                          int more_blocks = 0) {
  auto* const bits = reinterpret_cast<unsigned*>(static_cast<std::byte*>(block) + kMaximaAt);
  launch(maxima_kernel<kMaximaThreads>,
         {.grid = dim3(static_cast<unsigned>(blocks + more_blocks)),
          .block = dim3(kMaximaThreads),
          .overlaps_previous = true},
         x, count, blocks, more, more_count, bits);
  return {bits, blocks};
}
inline Maxima find_maxima(const float* x, std::int64_t count, void* block) {
  return find_maxima(x, count, block, maxima_blocks(count));
}

inline void launch_pack(const OperandsPack& first, const OperandsPack& second) {
  const std::int64_t pieces = first.pieces > second.pieces ? first.pieces : second.pieces;
  LaunchShape shape = grid_for(ceil_div(pieces, kPackedAtOnce));
  shape.grid.y = second.pieces > 0 ? 2 : 1;
  shape.overlaps_previous = true;
  launch(pack_operands_kernel<kPackedAtOnce>, shape, first, second);
}

// Packs x: `count` numbers, a multiple of 8; block: half_operands_bytes(count).
inline HalfOperands pack_half_operands(const float* x, std::int64_t count, void* block) {
  const OperandsPack pack(x, count, find_maxima(x, count, block), block);
  launch_pack(pack, {});
  return pack.operands();
}

// Packs two images, in as many launches as one image takes.
struct TwoOperands {
  HalfOperands first, second;
};
inline TwoOperands pack_half_operands(const float* a, std::int64_t a_count, void* a_block,
                                    const float* b, std::int64_t b_count, void* b_block) {
  const auto blocks = [](std::int64_t count) {
    const int all = maxima_blocks(count);
    return all < kMaximaOfTwo ? all : kMaximaOfTwo;
  };
  const Maxima a_maxima =
      find_maxima(a, a_count, a_block, blocks(a_count), b, b_count, blocks(b_count));
  const OperandsPack first(a, a_count, a_maxima, a_block);
  const OperandsPack second(b, b_count, {a_maxima.bits + a_maxima.count, blocks(b_count)}, b_block);
  launch_pack(first, second);
  return {first.operands(), second.operands()};
}

}  // namespace convscope::half_tiles
