// SPDX-License-Identifier: Apache-2.0
// nchw16c_tiles_simd.cpp: register tiles of direct and pointwise convolution in NCHW16c: forward
// and backward_data. direct_nchw16c_cpu.cpp combines them into a convolution.
//
// Choices    AVX-512: 14 pixels x 2 vectors (or 7 x 4) = 28 accumulators + 2 (4) of weights of 32
//            registers; the broadcast is part of the FMA. AVX2: 6 x 2 = 12 + 2 + 1 of 16. Taps that
//            reach over the border of the image skip their pixels by comparison; no padding is
//            copied or multiplied. A border costs a branch for each pixel of such a tap; interior
//            taps cost nothing.
// GCC 12 keeps an array on the stack if a loop that is not unrolled indexes it. So every loop over
// accumulators has an unroll pragma.
// Read next  nchw16c_tiles.h; direct_nchw16c_cpu.cpp, which uses it
#include "framework/simd/simd.h"
#include "layers/conv2d/shared/nchw16c_tiles.h"
#include "layers/conv2d/shared/nchw16c_weight_tiles.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using Index = std::int64_t;

constexpr int kPixels = kManyRegisters ? 14 : 6;
constexpr int kBlock = 16;  // channels of a block

// Returns the offset in `out` of vector v of a tile's channels.
constexpr CONVSCOPE_INLINE Index lane_offset(int v, Index block) {
  return v * kLanes / kBlock * block + v * kLanes % kBlock;
}

// Channels of a block: 16, known at compile time, or any number.
struct WholeBlock {
  static constexpr bool kWhole = true;
  static constexpr int channels = kBlock;
};
struct PartOfBlock {
  static constexpr bool kWhole = false;
  int channels;
};

// Adds the products of one tap and one block for pixels [First, End). Unless All is true, skips the
// pixels outside of [first, end).
template <int First, int End, bool All, int Pixels, int Vectors, class Block>
CONVSCOPE_INLINE void add_tap(const float* in, Index step, const Block& block, const float* w,
                              Index ahead, int first, int end, Vec (&sums)[Pixels][Vectors]) {
#pragma GCC unroll 2
  for (int c = 0; c < block.channels; ++c, ++in, w += Vectors * kLanes) {
    Vec weights[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) weights[v] = load(w + v * kLanes);
    __builtin_prefetch(w + ahead, 0, 2);
    const float* base = in;  // for three pixels, 0, 1, 2 steps are addressing modes
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

// Adds the taps of a chain in one block. Most taps that reach beyond the border do so by one pixel,
// as in a 3x3 kernel, or by two, as in a 5x5 kernel. For these taps the range of pixels is known at
// compile time (two: whole blocks only).
template <int Pixels, int Vectors, class Block>
CONVSCOPE_INLINE void add_taps(const Nchw16cTile& tile, const Nchw16cChain& chain, Index step,
                               const float* in, const Block& block, const float* w,
                               Vec (&sums)[Pixels][Vectors]) {
  constexpr bool kTwoOver = Pixels > 2 && Block::kWhole;
  for (int t = chain.tap; t < chain.end; ++t) {
    const Nchw16cTap& at = tile.tap[t];
    const float* const from = in + at.in;
    const float* const weights = w + at.w;
    if (at.first == 0 && at.end == Pixels) {
      add_tap<0, Pixels, true>(from, step, block, weights, chain.ahead, 0, Pixels, sums);
    } else if (Pixels > 1 && at.first == 1 && at.end == Pixels) {
      add_tap<Pixels == 1 ? 0 : 1, Pixels, true>(from, step, block, weights, chain.ahead, 1, Pixels,
                                                 sums);
    } else if (Pixels > 1 && at.first == 0 && at.end == Pixels - 1) {
      add_tap<0, Pixels - 1, true>(from, step, block, weights, chain.ahead, 0, Pixels - 1, sums);
    } else if (kTwoOver && at.first == 2 && at.end == Pixels) {
      add_tap<kTwoOver ? 2 : 0, Pixels, true>(from, step, block, weights, chain.ahead, 2, Pixels,
                                              sums);
    } else if (kTwoOver && at.first == 0 && at.end == Pixels - 2) {
      add_tap<0, kTwoOver ? Pixels - 2 : 0, true>(from, step, block, weights, chain.ahead, 0,
                                                  Pixels - 2, sums);
    } else {
      add_tap<0, Pixels, false>(from, step, block, weights, chain.ahead, at.first, at.end, sums);
    }
  }
}

// Prefetches the cache lines of the tile's outputs while the sums are computed.
template <int Pixels, int Vectors>
CONVSCOPE_INLINE void prefetch_lines(const Nchw16cTiles& tiles, const Nchw16cTile& tile) {
  constexpr int kBlocks = (Vectors * kLanes + kBlock - 1) / kBlock;
  for (int j = 0; j < Pixels; ++j) {
    for (int b = 0; b < kBlocks; ++b) {
      __builtin_prefetch(tile.out + j * tiles.out_step + b * tiles.out_block, 1);
    }
  }
}

// Calls f for each accumulator, unrolled, so that the accumulators stay in registers.
template <int Pixels, int Vectors, class F>
CONVSCOPE_INLINE void for_each_sum(const Vec (&)[Pixels][Vectors], const F& f) {
#pragma GCC unroll 16
  for (int j = 0; j < Pixels; ++j) {
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) f(j, v);
  }
}

template <int Pixels, int Vectors>
void add_chain(const Nchw16cTiles& tiles, const Nchw16cTile& tile, const Nchw16cChain& chain,
               float* kept) {
  if (chain.last) prefetch_lines<Pixels, Vectors>(tiles, tile);
  Vec sums[Pixels][Vectors];
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v) {
    Vec start = zero();
    const int rest = tiles.starts - v * kLanes;
    if (chain.first && rest > 0) {
      start = load_first(tiles.start + v * kLanes, rest < kLanes ? rest : kLanes);
    }
#pragma GCC unroll 16
    for (int j = 0; j < Pixels; ++j) sums[j][v] = start;
  }
  const float* in = tile.in + chain.block * tiles.in_block;
  const float* w = tiles.w + chain.block * tiles.w_block;
  for (Index d = chain.depth; d > 0; --d, in += tiles.in_block, w += tiles.w_block) {
    const bool is_last = chain.block + chain.depth == tiles.depth && d == 1;
    const int channels = is_last ? tiles.last : kBlock;
    // A 1x1 kernel reads each line of `in` once for each tile. Lines are a plane apart, which the
    // hardware prefetcher does not foresee. So the loop prefetches the next line, and after the
    // last line the first line of the next tile.
    if (tile.taps == 1) {
      const float* const next =
          d > 1 ? in + tiles.in_block
                : tile.in + chain.block * tiles.in_block + Pixels * tiles.in_step;
#pragma GCC unroll 16
      for (int j = 0; j < Pixels; ++j) {
        __builtin_prefetch(next + tile.tap[0].in + j * tiles.in_step);
      }
    }
    if (channels == kBlock) {
      add_taps(tile, chain, tiles.in_step, in, WholeBlock{}, w, sums);
    } else {
      add_taps(tile, chain, tiles.in_step, in, PartOfBlock{channels}, w, sums);
    }
  }
  if (!chain.first) {
    for_each_sum(sums, [&](int j, int v) {
      sums[j][v] = load(kept + (j * Vectors + v) * kLanes) + sums[j][v];
    });
  }
  if (!chain.last) {
    for_each_sum(sums, [&](int j, int v) { store(kept + (j * Vectors + v) * kLanes, sums[j][v]); });
    return;
  }
  const auto at = [&](int j, int v) {
    return j * tiles.out_step + lane_offset(v, tiles.out_block);
  };
  if (tile.residual != nullptr) {
    for_each_sum(sums,
                 [&](int j, int v) { sums[j][v] = sums[j][v] + load(tile.residual + at(j, v)); });
  }
  if (tiles.relu) {
    const Vec most = broadcast(tiles.most);
    for_each_sum(sums, [&](int j, int v) { sums[j][v] = bounded_relu(sums[j][v], most); });
  }
  for_each_sum(sums, [&](int j, int v) { store(tile.out + at(j, v), sums[j][v]); });
}

using AddChain = void (*)(const Nchw16cTiles&, const Nchw16cTile&, const Nchw16cChain&, float*);

template <int Pixels>
AddChain chain_of(int width) {
  if constexpr (Pixels <= kPixels) {
    if (width == kLanes) return add_chain<Pixels, 1>;
    if (width == 2 * kLanes) return add_chain<Pixels, 2>;
    if constexpr (2 * Pixels <= kPixels) return add_chain<Pixels, 4>;
  }
  return nullptr;
}

using ChainOf = AddChain (*)(int width);
constexpr ChainOf kChains[14] = {
    chain_of<1>, chain_of<2>, chain_of<3>,  chain_of<4>,  chain_of<5>,  chain_of<6>,  chain_of<7>,
    chain_of<8>, chain_of<9>, chain_of<10>, chain_of<11>, chain_of<12>, chain_of<13>, chain_of<14>};

void tile(const Nchw16cTiles& tiles, const Nchw16cTile& tile, const Nchw16cChain& chain,
          float* kept, int width) {
  kChains[tile.pixels - 1](width)(tiles, tile, chain, kept);
}

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(nchw16c_kernels,
                       (Nchw16cKernels{.lanes = CONVSCOPE_ISA::kLanes,
                                       .pixels = CONVSCOPE_ISA::kPixels,
                                       .tile = CONVSCOPE_ISA::tile,
                                       .weight_tile = CONVSCOPE_ISA::nchw16c_weight_tile}))
