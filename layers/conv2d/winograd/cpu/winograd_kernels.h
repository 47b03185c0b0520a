// SPDX-License-Identifier: Apache-2.0
// winograd_kernels.h: Winograd's transforms with channels in the lanes, for each instruction set;
// points.h has the products between them.
//
// L is the number of lanes, M the size of an output tile, T = M + 2. A panel holds pixels of L
// channels: [rows, columns, L]. A point is one of the T T positions in a transformed tile.
#pragma once

#include <cstdint>

#include "framework/simd/cpu_isa.h"

namespace convscope {

// Most columns of a panel: 6 rows x 66 x 16 floats are 25 KiB of L1.
inline constexpr int kMaxColumns = 66;

// A view of L channels of an image [h, w]. `step` is the distance of two pixels in floats: L in a
// panel, 16 in NCHW16c. Pixel (0, 0) of the view is pixel (row, column) of the image. Pixels
// outside the image read as 0 and are not written.
template <class Float>
struct PixelView {
  Float* image = nullptr;
  std::int64_t h = 0, w = 0, step = 0;
  std::int64_t row = 0, column = 0;
};

// Points of adjacent tiles: point p of a tile is at `at` + p step + tile L.
struct WinogradPoints {
  int tiles = 0;
  float* at = nullptr;
  std::int64_t step = 0;
};

// Epilogue of an output: the added terms, and whether min(max(.., 0), most) is applied.
struct WinogradFinish {
  const float* bias = nullptr;  // [lanes], or null
  int lanes = 0;
  const float* residual = nullptr;  // an image in the output's layout, or null
  bool relu = false;
  float most = 0;  // for relu; infinity: no bound
};

struct WinogradTransforms {
  // Transforms T x T pixels d of each tile to points B^T d B. `panel` is memory for [T, tiles M +
  // 2, L]; x may be a view of this panel.
  void (*input)(const PixelView<const float>& x, const WinogradPoints& to, float* panel) = nullptr;
  // Transforms M x M pixels u of each tile to points A u A^T.
  void (*gradient)(const PixelView<const float>& dy, const WinogradPoints& to) = nullptr;
  // Transforms T x T points m of each tile to pixels A^T m A and applies the epilogue.
  void (*output)(const WinogradPoints& from, const PixelView<float>& y,
                 const WinogradFinish& finish) = nullptr;
  // Transforms kernels g, taps[count, 3, 3, L], to G g G^T: point p of kernel i at to[p point_step
  // + i step]. reversed: taps are read backwards.
  void (*weights)(const float* taps, bool reversed, std::int64_t count, float* to,
                  std::int64_t step, std::int64_t point_step) = nullptr;
  // Computes taps[count, 3, 3, L] = G^T m G from points m, stored as in weights(): point p of
  // kernel i is at from[p point_step + i step]. Adds to `taps` if `accumulate`.
  void (*weight_sums)(const float* from, std::int64_t step, std::int64_t point_step,
                      std::int64_t count, bool accumulate, float* taps) = nullptr;
};

struct WinogradKernels {
  WinogradTransforms two, four, six;
};

extern IsaTable<WinogradKernels> winograd_kernels;

// Returns the transforms for tiles of m x m outputs.
inline const WinogradTransforms& winograd_transforms(std::int64_t m) {
  const WinogradKernels& kernels = winograd_kernels.get();
  return m == 2 ? kernels.two : m == 4 ? kernels.four : kernels.six;
}

}  // namespace convscope
