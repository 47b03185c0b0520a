// SPDX-License-Identifier: Apache-2.0
// winograd_plan.h: how Winograd's convolution reads images, and how it cuts a problem into tiles,
// strips and blocks. The numbers depend on the problem only.
//
// A strip is a row of neighbouring output tiles of one image. All strips of a problem are equally
// long, so the last strip of a row may hold tiles outside of the image, which are dropped. A block
// is some strips whose tiles are transformed, multiplied and transformed back together.
//
// The sizes below suit a core with AVX-512: register tiles of 14 tiles x 2 vectors of 16 channels
// (points_simd.cpp), 48 KiB of L1 and at least 1 MiB of L2. Other cores use the same sizes.
#pragma once

#include <algorithm>

#include "framework/int_math.h"
#include "framework/memory/memory.h"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/shared/points.h"
#include "layers/conv2d/winograd/cpu/winograd_kernels.h"

namespace convscope::winograd {

using Index = std::int64_t;

// ---- images ------------------------------------------------------------------------------------

// The layout of images matters only here and where outputs are stored (winograd_cpu.cpp):
//
//   NCHW     pixels of L planes are transposed into the lanes of a panel, and back
//   NCHW16c  L channels of a pixel are adjacent already: the transforms read and write the
//            tensor itself

inline bool is_nchw16c(const Conv2dProblem& z) { return z.layout == ActivationLayout::nchw16c; }

// x or y, and their gradients: [N, channels, h, w].
struct Images {
  static Images x_of(const Conv2dProblem& z) { return {is_nchw16c(z), z.c, z.h, z.w}; }
  static Images y_of(const Conv2dProblem& z) { return {is_nchw16c(z), z.k, z.p(), z.q()}; }

  // Returns the offset of pixel (0, 0) of a channel of image n.
  std::int64_t offset(std::int64_t n, std::int64_t channel) const {
    if (!nchw16c) return (n * channels + channel) * h * w;
    const std::int64_t block = n * ceil_div(channels, kChannelBlock) + channel / kChannelBlock;
    return block * h * w * kChannelBlock + channel % kChannelBlock;
  }

  // Returns a view of the pixels from (row, column) on of the `lanes` channels at `from`. In NCHW
  // it copies `rows` x `columns` pixels into the panel.
  PixelView<const float> read(const PointKernels& kernels, const float* from, std::int64_t lanes,
                              std::int64_t row, std::int64_t column, std::int64_t rows,
                              std::int64_t columns, float* panel) const {
    if (nchw16c) return {from, h, w, kChannelBlock, row, column};
    Planes{h, w}.read(kernels, from, lanes, row, column, rows, columns, panel);
    return {panel, rows, columns, kernels.lanes, 0, 0};
  }

  bool nchw16c;
  std::int64_t channels, h, w;
};

inline constexpr Index kKernelsAtOnce = 32;  // taps in lanes: 32 x 9 x 64 B = 18 KiB

// ---- forward and backward_data by blocks: U stays; V and M are made for each block --------------
inline constexpr Index kPointsFloats = 160000;  // V and M of a block: 640 KB of L2
// A block has at least two register tiles, so that an element of U loaded from L2 is used for two
// tiles. A block has at most eight register tiles: V of one point and 64 channels is then 28 KiB,
// and stays in L1 for all panels of U.
inline constexpr Index kLeastTiles = 2 * 14, kMaxTiles = 8 * 14;

// ---- the same by panels: V stays; each thread makes M of some output channels -------------------
inline constexpr Index kWeightsFloats = 1 << 20;  // U above 4 MiB is used panel by panel
// With few tiles, U is used panel by panel if it has 4 panels or more. Up to 100 tiles of 4x4 make
// at most 4 blocks of kLeastTiles, so 4 panels give the threads as many chunks as blocks would. The
// limit applies to the number of tiles times M.
inline constexpr Index kManyPanels = 4, kFewTileRows = 100 * 4;
inline constexpr Index kFewTiles = 16;           // see prepares
inline constexpr Index kSharedFloats = 1 << 20;  // V that all panels read: 4 MiB of L3
// Least number of tiles that share an element of U: each computation or load of the element then
// serves 128 FMAs.
inline constexpr Index kLeastSharedTiles = 128;

// ---- backward_weight: sums over tiles ----------------------------------------------------------
inline constexpr Index kMaxSharedFloats = 3 << 20;  // x and dy of all tiles: 12 MiB of L3
// Each sum is loaded and stored once for each block: with 56 tiles that is 1 access for 28 FMAs.
// With 160 tiles, the product's x (16 channels) and dy (3 vectors of kernels) take 10 + 30 KiB of
// L1.
inline constexpr Index kLeastTilesOfSum = 4 * 14, kMaxTilesOfSum = 160;

// The tiles of an output [out_h, out_w] of N images.
struct TileGrid {
  TileGrid(Index m, Index images, Index out_h, Index out_w)
      : size(m),
        t(m + 2),
        points(t * t),
        down(ceil_div(out_h, m)),
        pieces(ceil_div(ceil_div(out_w, m), (kMaxColumns - 2) / m)),
        across(ceil_div(ceil_div(out_w, m), pieces)),
        strips(images * down * pieces) {}
  // Returns the columns of a panel [t, columns, L].
  Index columns() const { return across * size + 2; }
  Index panel_floats(Index lanes) const { return t * columns() * lanes; }

  Index size, t, points;  // M, M + 2, T T
  Index down, pieces, across, strips;
};

// A strip of one image, and its first output pixel.
struct Strip {
  Strip(const TileGrid& tiling, Index index)
      : image(index / (tiling.down * tiling.pieces)),
        row(index / tiling.pieces % tiling.down * tiling.size),
        column(index % tiling.pieces * tiling.across * tiling.size) {}
  Index image, row, column;
};

// Sizes of a pass. forward: in = x, out = y; backward_data: in = dy, out = dx. For each group, the
// pass sums over `depth` channels of `in` and computes `channels` channels of `out`.
struct WinogradTiling {
  WinogradTiling(Index m, const Conv2dProblem& problem, Direction direction)
      : z(problem),
        forward(direction == Direction::forward),
        depth(forward ? z.c_per_group() : z.k_per_group()),
        channels(forward ? z.k_per_group() : z.c_per_group()),
        in(forward ? Images::x_of(z) : Images::y_of(z)),
        out(forward ? Images::y_of(z) : Images::x_of(z)),
        top(forward ? -z.pad_top : z.pad_top - 2),
        left(forward ? -z.pad_left : z.pad_left - 2),
        tiling(m, z.n, out.h, out.w) {
    const PointKernels& kernels = point_kernels.get();
    lanes = kernels.lanes;
    depth_blocks = ceil_div(depth, lanes);
    channel_blocks = ceil_div(channels, lanes);
    panels = ceil_div(channel_blocks, kernels.vectors);
    const Index per_tile = tiling.points * lanes;
    const Index u = tiling.points * depth * channel_blocks * lanes;
    const Index tiles = tiling.strips * tiling.across;
    by_panels = u > kWeightsFloats || (panels >= kManyPanels && tiles * tiling.size < kFewTileRows);
    prepares_always = !by_panels || u <= kWeightsFloats;
    prepares = prepares_always || tiles <= kFewTiles;
    Index wanted = 0;
    if (by_panels) {
      wanted = std::max(kSharedFloats / (per_tile * depth_blocks), kLeastSharedTiles);
    } else {
      wanted = kPointsFloats / (per_tile * (depth_blocks + channel_blocks));
      wanted = std::clamp(wanted, kLeastTiles, kMaxTiles);
    }
    block_strips = std::clamp<Index>(wanted / tiling.across, 1, tiling.strips);
    blocks = ceil_div(tiling.strips, block_strips);
    block_strips = ceil_div(tiling.strips, blocks);
    block_tiles = block_strips * tiling.across;
    v_point = odd_lines(depth_blocks * block_tiles * lanes);
    m_point = odd_lines((by_panels ? kernels.vectors : channel_blocks) * block_tiles * lanes);
    u_point = odd_lines(depth * (by_panels ? kernels.vectors : channel_blocks) * lanes);
  }
  Index v_floats() const { return tiling.points * v_point; }
  Index m_floats() const { return tiling.points * m_point; }
  Index u_floats() const { return tiling.points * u_point; }
  Index scratch_floats() const {  // a panel of pixels, or taps
    return std::max(tiling.panel_floats(lanes), kKernelsAtOnce * 9 * lanes);
  }
  // Returns how many parts U of one group has. With by_panels each panel is a part, otherwise there
  // is one part. U is prepared before the call, or each thread makes the panel that it needs.
  Index u_pieces() const { return by_panels ? panels : 1; }
  Index prepared_floats() const { return prepares ? z.groups * u_pieces() * u_floats() : 0; }
  Index u_at(Index g, Index panel) const {
    const Index piece = by_panels ? g * panels + panel : g;
    return piece * u_floats() +
           (by_panels ? 0 : panel * point_kernels.get().vectors * lanes * depth);
  }
  // Returns the floats that threads share. With by_panels they share V, and each thread has its own
  // M, and its own U if U is not prepared. Otherwise each thread has its own V and M.
  Index shared_floats() const { return by_panels ? v_floats() : 0; }
  Index u_thread_floats() const { return prepares_always ? 0 : u_floats(); }
  Index thread_floats() const {
    return odd_lines((by_panels ? u_thread_floats() : v_floats()) + m_floats() + scratch_floats());
  }

  const Conv2dProblem& z;
  bool forward;
  Index depth, channels;
  Images in, out;
  Index top, left;  // the pixel of `in` that tap (0, 0) of output 0 reads
  TileGrid tiling;
  Index lanes = 1, depth_blocks = 1, channel_blocks = 1, panels = 1;
  bool by_panels = false;
  // Whether U is made before the call. Making a U above 4 MiB in the caches is faster than writing
  // U to memory and reading it again. A U that was made for many calls is only read; that pays off
  // where U is used for few tiles.
  bool prepares = true, prepares_always = true;
  Index block_strips = 1, blocks = 0, block_tiles = 1;
  Index v_point = 0, m_point = 0, u_point = 0;
};

// The sizes of X [points, C/L, tiles, L] and Y [points, K/L, tiles, L] of a block of strips, and of
// the sums [points, K/L, C, L] of one group. by_panels: the block has all tiles, and each thread
// has the sums of a few kernels.
struct WinogradWeightTiling {
  WinogradWeightTiling(Index m, const Conv2dProblem& problem)
      : z(problem),
        channels(z.c_per_group()),
        kernels(z.k_per_group()),
        x(Images::x_of(z)),
        y(Images::y_of(z)),
        tiling(m, z.n, y.h, y.w),
        lanes(point_kernels.get().lanes),
        channel_blocks(ceil_div(channels, lanes)),
        kernel_blocks(ceil_div(kernels, lanes)) {
    const Index per_tile = tiling.points * lanes * (channel_blocks + kernel_blocks);
    const Index tiles = tiling.strips * tiling.across;
    by_panels = tiling.points * kernel_blocks * kernel_floats() > kWeightsFloats &&
                tiles * per_tile <= kMaxSharedFloats;
    const Index wanted =
        by_panels ? tiles
                  : std::clamp(2 * kPointsFloats / per_tile, kLeastTilesOfSum, kMaxTilesOfSum);
    block_strips = std::clamp<Index>(wanted / tiling.across, 1, tiling.strips);
    blocks = ceil_div(tiling.strips, block_strips);
    block_strips = ceil_div(tiling.strips, blocks);
    block_tiles = block_strips * tiling.across;
    x_point = odd_lines(channel_blocks * block_tiles * lanes);
    y_point = odd_lines(kernel_blocks * block_tiles * lanes);
    const Index sum_blocks =
        by_panels ? std::min<Index>(kernel_blocks, point_kernels.get().sum_vectors) : kernel_blocks;
    sum_point = odd_lines(sum_blocks * kernel_floats());
  }
  Index kernel_floats() const {
    return channel_blocks * lanes * lanes;
  }  // for one vector of kernels
  Index sums_floats() const { return tiling.points * sum_point; }
  Index shared_floats() const {
    return tiling.points * (x_point + y_point) + (by_panels ? 0 : sums_floats());
  }
  Index thread_floats() const {
    return odd_lines((by_panels ? sums_floats() : 0) +
                     std::max(tiling.panel_floats(lanes), kKernelsAtOnce * 9 * lanes));
  }

  const Conv2dProblem& z;
  Index channels, kernels;
  Images x, y;
  TileGrid tiling;
  Index lanes, channel_blocks, kernel_blocks;
  bool by_panels = false;
  Index block_strips = 1, blocks = 0, block_tiles = 1;
  Index x_point = 0, y_point = 0, sum_point = 0;
};

// Computes dw with tiles of m x m outputs (winograd_weights.cpp).
void weight_gradient(int m, const Conv2dBackwardWeightArgs& args);

}  // namespace convscope::winograd
