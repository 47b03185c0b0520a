// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_plan.h: the sizes of implicit_gemm's pieces and steps, the scale of f32 as two fp16
// numbers, and the time of a grid of tiles. It needs no CUDA, so tests check it on the CPU.
// Read next  layers/conv2d/shared/cuda/gather_lines.h: where each number comes from and goes to
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

using half_tiles::kPieceHalves;
using half_tiles::pieces_of;
using half_tiles::scale_exponent;

// Microseconds of one SM of an H200: `step` for each step of a tile, `around` for its beginning and
// end.
struct TileTime {
  double step = 1, around = 1;
};

// Number of tiles, their steps together, and the steps of the longest tile.
struct Grid {
  double tiles = 1, steps = 1;
  int longest = 1;
};
// Indexed by the blocks that can share an SM. A step of a `gather` block that is alone on its SM
// waits for its own loads and takes as long as this many steps at full speed.
inline constexpr double kAloneSteps[] = {1, 1, 1.4, 1.75};

// Returns the time of whole waves of blocks, plus the rest. The rest takes as long as its fullest
// SM or its longest tile, which runs alone: its steps take `alone` steps.
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
