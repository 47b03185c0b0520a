// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_plan.h: the sizes of implicit_gemm's pieces and steps, and the scale of f32 as two
// halves. No CUDA here: tests check it on the CPU.
// Read next  layers/conv2d/shared/cuda/gather_lines.h: where each number comes from and goes to
#pragma once

#include "layers/conv2d/shared/cuda/gather_lines.h"

namespace convscope::implicit_gemm {

using gather::backward_line;
using gather::blocks_of;
using gather::forward_line;
using gather::kBlockPieces;
using gather::kChannelPieces;
using gather::kMostTaps;
using gather::Line;
using gather::part_begin;
using gather::Piece;
using gather::piece_at;

inline constexpr int kPieceHalves = 8;  // of 16 bytes
inline constexpr int kBlockDepth = 64;  // halves of a step
inline constexpr int kMostPhases = 8;   // strides of backward_data, in each dimension

constexpr int pieces_of(int channels) { return ceil_div(channels, kPieceHalves); }

// f32 as two halves: scale by 2^e so that the largest magnitude lies in [2^13, 2^14), then
// high = half(v), low = half(v - high): 22 bits for all v above 2^-27 of the largest.
constexpr int scale_exponent(unsigned largest_bits) {
  const int exponent = static_cast<int>(largest_bits >> 23) - 127;
  const int e = largest_bits == 0 ? 0 : 13 - exponent;
  return e > 126 ? 126 : e;
}

}  // namespace convscope::implicit_gemm
