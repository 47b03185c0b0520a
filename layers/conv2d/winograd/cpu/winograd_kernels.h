// SPDX-License-Identifier: Apache-2.0
// winograd_kernels.h: Winograd's transforms with channels in the lanes, for each instruction set;
// the products between them stand in points.h.
//
// L is the number of lanes, M the size of an output tile, T = M + 2. A panel holds pixels of L
// channels: [rows, columns, L]. A point is one of the T T places in a transformed tile;
// `point_step` floats lie between points.
#pragma once

#include <cstdint>

#include "framework/simd/cpu_isa.h"

namespace convscope {

// `tiles` tiles side by side, M columns apart; a tile's points lie at to + tile * L.
struct WinogradTiles {
  int tiles = 0;
  const float* from = nullptr;
  std::int64_t from_row = 0;  // floats between rows of the panel
  float* to = nullptr;
  std::int64_t point_step = 0;
};

struct WinogradTransforms {
  // T x T pixels d of each tile in a panel to points B d B^T; the panel is used up, z.from is not
  // read.
  void (*input)(const WinogradTiles& z, float* panel) = nullptr;
  // M x M pixels u of each tile to A u A^T; `from` is a panel, `to` are points.
  void (*gradient)(const WinogradTiles& z) = nullptr;
  // T x T points m of each tile to A^T m A + bias; points at `from`, a panel at `to`, with
  // `from_row` floats between its rows. bias: `lanes` numbers, or null.
  void (*output)(const WinogradTiles& z, const float* bias, int lanes) = nullptr;
  // Kernels g, taps[count, 3, 3, L], to G g G^T: point p of kernel i at to[p point_step + i step].
  // reversed: taps are read backwards.
  void (*weights)(const float* taps, bool reversed, std::int64_t count, float* to,
                  std::int64_t step, std::int64_t point_step) = nullptr;
  // taps[count, 3, 3, L] = G^T m G of points m laid out like that; added to if `accumulate`.
  void (*weight_sums)(const float* from, std::int64_t step, std::int64_t point_step,
                      std::int64_t count, bool accumulate, float* taps) = nullptr;
};

struct WinogradKernels {
  WinogradTransforms two, four, six;
};

extern IsaTable<WinogradKernels> winograd_kernels;

}  // namespace convscope
