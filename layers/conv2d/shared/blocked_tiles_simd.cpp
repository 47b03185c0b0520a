// SPDX-License-Identifier: Apache-2.0
// blocked_tiles_simd.cpp: register tiles of direct and pointwise convolution in the blocked layout: forward
// and backward_data. blocked_pass.cpp says how they make up a convolution.
//
// Choices    AVX-512: 14 pixels x 2 vectors (or 7 x 4) = 28 sums + 2 (4) of weights of 32 registers, the
//            broadcast is part of the FMA. AVX2: 6 x 2 = 12 + 2 + 1 of 16.
//            Taps that reach over the border of the image skip their pixels by comparison; no padding is
//            copied or multiplied. A border costs a branch for each pixel of such a tap, that of the
//            inside nothing.
// GCC 12 keeps an array that an ordinary loop indexes on the stack: every loop over sums has an
// unroll pragma.
// Read next  blocked_tiles.h; blocked_pass.cpp, which uses it
#include "framework/simd/simd.h"
#include "framework/simd/sum_chain.h"
#include "layers/conv2d/shared/blocked_tiles.h"
#include "layers/conv2d/shared/blocked_weight_tiles.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using Index = std::int64_t;

#if defined(CONVSCOPE_ISA_IS_AVX512)
constexpr int kPixels = 14;
#else
constexpr int kPixels = 6;
#endif
constexpr int kBlock = 16;  // channels of a block
// Of one chain (framework/simd/sum_chain.h): each tap adds 16 products.
constexpr int kChainTaps = kSumChain / kBlock;

// Where vector v of a tile's channels lies in `out`.
constexpr CONVSCOPE_INLINE Index lane_offset(int v, Index block) {
  return v * kLanes / kBlock * block + v * kLanes % kBlock;
}

// All 16 products of one tap and one block. `Whole`: every pixel of the tile has it.
template <int Pixels, int Vectors, bool Whole>
CONVSCOPE_INLINE void add_tap(const float* in, Index step, const float* w, int first, int end,
                              Vec (&sums)[Pixels][Vectors]) {
#pragma GCC unroll 2
  for (int c = 0; c < kBlock; ++c, w += Vectors * kLanes) {
    Vec weights[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) weights[v] = load(w + v * kLanes);
    const float* base =
        in + c;  // of three pixels: 0, 1 and 2 steps are addresses of one instruction
#pragma GCC unroll 16
    for (int j = 0; j < Pixels; ++j) {
      if (j > 0 && j % 3 == 0) base += 3 * step;
      if (!Whole && (j < first || j >= end)) continue;
      const Vec value = broadcast(base[j % 3 * step]);
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) sums[j][v] = fma(value, weights[v], sums[j][v]);
    }
  }
}

// Blocks [0, depth) and taps [tap, end) of a tile; `first` starts the sums, the others are added to `kept`.
template <int Pixels, int Vectors>
CONVSCOPE_INLINE void add_chain(const BlockedTile& tile, Index block, Index depth, int tap, int end,
                                bool first, float* kept) {
  Vec sums[Pixels][Vectors];
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v) {
    Vec start = zero();
    const int rest = tile.starts - v * kLanes;
    if (first && rest > 0)
      start = load_first(tile.start + v * kLanes, rest < kLanes ? rest : kLanes);
#pragma GCC unroll 16
    for (int j = 0; j < Pixels; ++j) sums[j][v] = start;
  }
  const float* in = tile.in + block * tile.in_block;
  const float* w = tile.w + block * tile.w_block;
  for (Index d = depth; d > 0; --d, in += tile.in_block, w += tile.w_block) {
    for (int t = tap; t < end; ++t) {
      const BlockedTap& at = tile.tap[t];
      if (at.first == 0 && at.end == Pixels) {
        add_tap<Pixels, Vectors, true>(in + at.in, tile.in_step, w + at.w, 0, Pixels, sums);
      } else {
        add_tap<Pixels, Vectors, false>(in + at.in, tile.in_step, w + at.w, at.first, at.end, sums);
      }
    }
  }
#pragma GCC unroll 16
  for (int j = 0; j < Pixels; ++j) {
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
      float* const to = kept + (j * Vectors + v) * kLanes;
      store(to, first ? sums[j][v] : load(to) + sums[j][v]);
    }
  }
}

// The sums of a tile are complete.
template <int Pixels, int Vectors>
CONVSCOPE_INLINE void finish(const BlockedTile& tile, const float* kept) {
  for (int j = 0; j < Pixels; ++j) {
    for (int v = 0; v < Vectors; ++v) {
      const Index at = j * tile.out_step + lane_offset(v, tile.out_block);
      Vec sum = load(kept + (j * Vectors + v) * kLanes);
      if (tile.residual != nullptr) sum = sum + load(tile.residual + at);
      if (tile.relu) sum = max(zero(), sum) + zero();  // NaN stays NaN, -0 becomes 0
      store(tile.out + at, sum);
    }
  }
}

template <int Pixels, int Vectors>
void tile_sums(const BlockedTile& tile) {
  alignas(64) float kept[Pixels * Vectors * kLanes];
  const int taps = tile.taps < kChainTaps ? tile.taps : kChainTaps;
  const Index blocks = tile.depth * taps > kChainTaps ? kChainTaps / taps : tile.depth;
  Index d = 0;
  do {  // once at least: pixels whose taps are all outside have their start alone
    const Index rest = tile.depth - d;
    int t = 0;
    do {
      const int end = t + taps < tile.taps ? t + taps : tile.taps;
      add_chain<Pixels, Vectors>(tile, d, rest < blocks ? rest : blocks, t, end, d == 0 && t == 0,
                                 kept);
      t = end;
    } while (t < tile.taps);
    d += blocks;
  } while (d < tile.depth && tile.taps > 0);
  finish<Pixels, Vectors>(tile, kept);
}

template <int Pixels>
void tile_of(const BlockedTile& tile, int width) {
  if constexpr (Pixels <= kPixels) {
    if (width == kLanes) return tile_sums<Pixels, 1>(tile);
    if (width == 2 * kLanes) return tile_sums<Pixels, 2>(tile);
    if constexpr (2 * Pixels <= kPixels) return tile_sums<Pixels, 4>(tile);
  }
}

using TileFunction = void (*)(const BlockedTile&, int width);
constexpr TileFunction kTiles[14] = {tile_of<1>,  tile_of<2>,  tile_of<3>,  tile_of<4>, tile_of<5>,
                                     tile_of<6>,  tile_of<7>,  tile_of<8>,  tile_of<9>, tile_of<10>,
                                     tile_of<11>, tile_of<12>, tile_of<13>, tile_of<14>};

void tile(const BlockedTile& tile, int width) { kTiles[tile.pixels - 1](tile, width); }

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(blocked_kernels,
                       (BlockedKernels{.lanes = CONVSCOPE_ISA::kLanes,
                                       .pixels = CONVSCOPE_ISA::kPixels,
                                       .tile = CONVSCOPE_ISA::tile,
                                       .weight_tile = CONVSCOPE_ISA::blocked_weight_tile}))
