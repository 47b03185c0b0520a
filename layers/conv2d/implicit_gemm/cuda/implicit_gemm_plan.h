// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_plan.h: the sizes of implicit_gemm's steps and the scale of f32 as two fp16
// numbers. The file needs no CUDA, so tests check it on the CPU.
// Read next  layers/conv2d/shared/cuda/gather_lines.h: the source and destination of each element
#pragma once

#include "layers/conv2d/shared/cuda/gather_lines.h"
#include "layers/conv2d/shared/cuda/half_pieces.h"

namespace convscope::implicit_gemm {

using gather::backward_line;
using gather::blocks_of;
using gather::forward_line;
using gather::kBlockPieces;
using gather::kChannelPieces;
using gather::kMaxTaps;
using gather::Line;
using gather::part_begin;
using gather::Piece;
using gather::piece_at;

inline constexpr int kBlockDepth = 64;  // reduction indices of a step
inline constexpr int kMaxPhases = 8;    // strides of backward_data, in each dimension

using half_tiles::kPieceElements;
using half_tiles::pieces_of;
using half_tiles::scale_exponent;

}  // namespace convscope::implicit_gemm
