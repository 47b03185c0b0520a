// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_plan.h: the sizes of implicit_gemm's steps, the scale of f32 as two fp16 numbers,
// and the time of a grid of tiles. The file needs no CUDA, so tests check it on the CPU.
// Read next  layers/conv2d/shared/cuda/gather_lines.h: the source and destination of each element
#pragma once

#include <algorithm>
#include <cmath>

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

// Time of a tile on one SM of an H200, in microseconds: `step` for each reduction step, `around`
// for the beginning and the end of the tile.
struct TileTime {
  double step = 1, around = 1;
};

// The number of tiles, the sum of their steps, and the steps of the longest tile.
struct Grid {
  double tiles = 1, steps = 1;
  int longest = 1;
};
// How much longer a step of the forward and backward_data kernel takes when its block is the only
// one on its SM and waits for its own loads. The unit is a step at full speed. The index is the
// number of blocks that can share an SM.
inline constexpr double kAloneSteps[] = {1, 1, 1.4, 1.75};

// Returns the time of all full waves of blocks, plus that of the last wave. The last wave takes as
// long as its fullest SM or its longest tile, whichever is longer. The longest tile has its SM to
// itself, where each step counts as `alone` steps.
inline double grid_us(int processors, int blocks, const TileTime& tile, double alone,
                      const Grid& grid, int parts) {
  const double each = std::ceil(grid.steps / grid.tiles / parts) * tile.step;
  const double at_once = processors * static_cast<double>(blocks);
  const double waves = std::floor(grid.tiles * parts / at_once);
  const double rest = grid.tiles * parts - waves * at_once;
  const double us = waves * (tile.around + blocks * each);
  if (rest == 0) return us;
  const double longest = std::ceil(static_cast<double>(grid.longest) / parts) * tile.step * alone;
  return us + tile.around + std::max(std::ceil(rest / processors) * each, longest);
}

}  // namespace convscope::implicit_gemm
