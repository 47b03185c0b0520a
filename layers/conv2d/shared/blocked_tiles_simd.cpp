// SPDX-License-Identifier: Apache-2.0
// blocked_tiles_simd.cpp: register tiles of direct and pointwise convolution in the blocked layout:
// forward and backward_data. blocked_pass.cpp says how they make up a convolution.
//
// Choices    AVX-512: 14 pixels x 2 vectors (or 7 x 4) = 28 sums + 2 (4) of weights of 32
//            registers, the broadcast is part of the FMA. AVX2: 6 x 2 = 12 + 2 + 1 of 16. Taps that
//            reach over the border of the image skip their pixels by comparison; no padding is
//            copied or multiplied. A border costs a branch for each pixel of such a tap, that of
//            the inside nothing.
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

// Where vector v of a tile's channels lies in `out`.
constexpr CONVSCOPE_INLINE Index lane_offset(int v, Index block) {
  return v * kLanes / kBlock * block + v * kLanes % kBlock;
}

// The channels of a block: 16 of blocked images, known to the compiler; or any number of them.
struct WholeBlock {
  static constexpr int channels = kBlock;
  static constexpr Index step = 1;
};
struct PartOfBlock {
  int channels;
  static constexpr Index step = 1;
};
struct Planes {
  int channels;
  Index step;  // from one to the next
};

// The products of one tap and one block, for pixels [First, End), or for those of them in [first,
// end).
template <int First, int End, bool All, int Pixels, int Vectors, class Block>
CONVSCOPE_INLINE void add_tap(const float* in, Index step, const Block& block, const float* w,
                              int first, int end, Vec (&sums)[Pixels][Vectors]) {
#pragma GCC unroll 2
  for (int c = 0; c < block.channels; ++c, in += block.step, w += Vectors * kLanes) {
    Vec weights[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) weights[v] = load(w + v * kLanes);
    const float* base = in;  // of three pixels: 0, 1, 2 steps are addresses of one instruction
#pragma GCC unroll 16
    for (int j = 0; j < End; ++j) {
      if (j > 0 && j % 3 == 0) base += 3 * step;
      if (j < First || (!All && (j < first || j >= end))) continue;
      const Vec value = broadcast(base[j % 3 * step]);
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) sums[j][v] = fma(value, weights[v], sums[j][v]);
    }
  }
}

// The taps [tap, end) of one block. The compiler knows the pixels of those that reach over the
// border of the image by none or by one pixel, as in a 3x3 kernel.
template <int Pixels, int Vectors, class Block>
CONVSCOPE_INLINE void add_taps(const BlockedTile& tile, int tap, int end, const float* in,
                               const Block& block, const float* w, Vec (&sums)[Pixels][Vectors]) {
  const Index step = tile.in_step;
  for (int t = tap; t < end; ++t) {
    const BlockedTap& at = tile.tap[t];
    const float* const from = in + at.in;
    const float* const weights = w + at.w;
    if (at.first == 0 && at.end == Pixels) {
      add_tap<0, Pixels, true>(from, step, block, weights, 0, Pixels, sums);
      continue;
    }
    if constexpr (Pixels > 1) {
      if (at.first == 1 && at.end == Pixels) {
        add_tap<1, Pixels, true>(from, step, block, weights, 1, Pixels, sums);
        continue;
      }
      if (at.first == 0 && at.end == Pixels - 1) {
        add_tap<0, Pixels - 1, true>(from, step, block, weights, 0, Pixels - 1, sums);
        continue;
      }
    }
    add_tap<0, Pixels, false>(from, step, block, weights, at.first, at.end, sums);
  }
}

// One chain of products: `depth` blocks from `block` on, taps [tap, end).
struct Chain {
  Index block, depth;
  int tap, end;
  bool first, last;  // starts the sums; stores them. In between they are kept.
};

template <int Pixels, int Vectors, bool InPlanes>
CONVSCOPE_INLINE void add_chain(const BlockedTile& tile, const Chain& chain, float* kept) {
  Vec sums[Pixels][Vectors];
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v) {
    Vec start = zero();
    const int rest = tile.starts - v * kLanes;
    if (chain.first && rest > 0) {
      start = load_first(tile.start + v * kLanes, rest < kLanes ? rest : kLanes);
    }
#pragma GCC unroll 16
    for (int j = 0; j < Pixels; ++j) sums[j][v] = start;
  }
  const float* in = tile.in + chain.block * tile.in_block;
  const float* w = tile.w + chain.block * tile.w_block;
  for (Index d = chain.depth; d > 0; --d, in += tile.in_block, w += tile.w_block) {
    const bool is_last = chain.block + chain.depth == tile.depth && d == 1;
    const int channels = is_last ? tile.last : kBlock;
    // A 1x1 kernel reads each line of `in` once for each tile, a plane away from the one before:
    // nothing but this sees it coming.
    if (!InPlanes && tile.taps == 1) {
#pragma GCC unroll 16
      for (int j = 0; j < Pixels; ++j) {
        __builtin_prefetch(in + tile.in_block + tile.tap[0].in + j * tile.in_step);
      }
    }
    if constexpr (InPlanes) {
      add_taps(tile, chain.tap, chain.end, in, Planes{channels, tile.in_channel}, w, sums);
    } else if (channels == kBlock) {
      add_taps(tile, chain.tap, chain.end, in, WholeBlock{}, w, sums);
    } else {
      add_taps(tile, chain.tap, chain.end, in, PartOfBlock{channels}, w, sums);
    }
  }
#pragma GCC unroll 16
  for (int j = 0; j < Pixels; ++j) {
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
      float* const total = kept + (j * Vectors + v) * kLanes;
      Vec sum = sums[j][v];
      if (!chain.first) sum = load(total) + sum;
      if (!chain.last) {
        store(total, sum);
        continue;
      }
      const Index at = j * tile.out_step + lane_offset(v, tile.out_block);
      if (tile.residual != nullptr) sum = sum + load(tile.residual + at);
      // NaN stays NaN, -0 becomes 0.
      if (tile.relu) sum = min(broadcast(tile.most), max(zero(), sum) + zero());
      store(tile.out + at, sum);
    }
  }
}

// Asks for the lines that the tile will be stored to; they come while the sums are made.
template <int Pixels, int Vectors>
CONVSCOPE_INLINE void prefetch_lines(const BlockedTile& tile) {
  constexpr int kBlocks = (Vectors * kLanes + kBlock - 1) / kBlock;
  for (int j = 0; j < Pixels; ++j) {
    for (int b = 0; b < kBlocks; ++b) {
      __builtin_prefetch(tile.out + j * tile.out_step + b * tile.out_block, 1);
    }
  }
}

// Chains of kSumChain products at most (framework/simd/sum_chain.h).
template <int Pixels, int Vectors, bool InPlanes>
void tile_sums(const BlockedTile& tile) {
  prefetch_lines<Pixels, Vectors>(tile);
  alignas(64) float kept[Pixels * Vectors * kLanes];
  const int most = kSumChain / (tile.depth == 1 ? tile.last : kBlock);
  const int taps = tile.taps < most ? tile.taps : most;
  const Index blocks = tile.depth * taps > most ? most / taps : tile.depth;
  const Index depth = taps > 0 ? tile.depth : 0;
  Index d = 0;
  do {  // once at least: pixels whose taps are all outside have their start alone
    const Index rest = depth - d;
    int t = 0;
    do {
      const int end = t + taps < tile.taps ? t + taps : tile.taps;
      add_chain<Pixels, Vectors, InPlanes>(tile,
                                           {.block = d,
                                            .depth = rest < blocks ? rest : blocks,
                                            .tap = t,
                                            .end = end,
                                            .first = d == 0 && t == 0,
                                            .last = rest <= blocks && end == tile.taps},
                                           kept);
      t = end;
    } while (t < tile.taps);
    d += blocks;
  } while (d < depth);
}

template <int Pixels, int Vectors>
void tile_in(const BlockedTile& tile) {
  tile.in_channel == 1 ? tile_sums<Pixels, Vectors, false>(tile)
                       : tile_sums<Pixels, Vectors, true>(tile);
}

template <int Pixels>
void tile_of(const BlockedTile& tile, int width) {
  if constexpr (Pixels <= kPixels) {
    if (width == kLanes) return tile_in<Pixels, 1>(tile);
    if (width == 2 * kLanes) return tile_in<Pixels, 2>(tile);
    if constexpr (2 * Pixels <= kPixels) return tile_in<Pixels, 4>(tile);
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
