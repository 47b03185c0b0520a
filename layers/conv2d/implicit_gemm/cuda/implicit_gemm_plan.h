// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_plan.h: the sizes of implicit_gemm's pieces and steps, and the scale of f32 as two
// halves. No CUDA here: tests check it on the CPU.
// Read next  layers/conv2d/shared/cuda/gather_lines.h: where each number comes from and goes to
#pragma once

#include "layers/conv2d/shared/cuda/gather_lines.h"
#include "layers/conv2d/shared/cuda/half_pieces.h"

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

inline constexpr int kBlockDepth = 64;  // halves of a step
inline constexpr int kMostPhases = 8;   // strides of backward_data, in each dimension

using half_tiles::kPieceHalves;
using half_tiles::pieces_of;
using half_tiles::scale_exponent;

}  // namespace convscope::implicit_gemm
