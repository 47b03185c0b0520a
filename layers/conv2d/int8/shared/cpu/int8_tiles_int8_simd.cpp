// SPDX-License-Identifier: Apache-2.0
// int8_tiles_int8_simd.cpp: register tiles of convolution on int8 values; int8_pass.cpp combines
// them to a convolution.
//
// Choices    AVX-512 with VNNI: 14 pixels x 2 vectors of accumulators (or 7 x 4) = 28 + 2 (4)
//            registers of weights + 1 of x, of 32. AVX2 with VNNI: 6 x 2 = 12 + 2 + 1, of 16.
//            Without VNNI x and weights take two registers each: tiles of 10 x 2 and 4 x 2. Sums
//            are exact, so a tile runs through the whole reduction at once; its weights come from
//            L1 or L2. With short sums, 12 pixels x 2 vectors are faster than 14: codes are stored
//            four at a time, and the epilogue needs registers. Tiles with the same taps run in one
//            call.
// GCC 12 keeps an array on the stack if a loop that is not unrolled indexes it. So every loop over
// accumulators has an unroll pragma. The loop over quads must stay a loop: in straight-line code
// GCC copies half of the accumulators to other registers where the branches for different kinds of
// taps join.
// Read next  int8_tiles.h; int8_pass.cpp, which uses it
#include "layers/conv2d/int8/shared/cpu/int8_tile_stores.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

constexpr int kPixels = kManyRegisters ? (kSpread ? 10 : 14) : (kSpread ? 4 : 6);

constexpr int kUnit = kLanes == kBlock && !kSpread ? 4 : 1;

// The number of quads of a block: 4, known at compile time, or any number.
struct WholeBlock {
  static constexpr int quads = kBlock / 4;
};
struct PartOfBlock {
  int quads;
};

// Adds the products of one tap and one block for pixels [First, End). Unless All is true, skips the
// pixels outside of [first, end).
template <int First, int End, bool All, int Pixels, int Vectors, class Block>
CONVSCOPE_INLINE void add_tap(const std::uint8_t* in, Index step, const Block& block,
                              const std::int8_t* w, int first, int end,
                              Ints (&sums)[Pixels][Vectors]) {
#pragma GCC unroll 1
  for (int q = 0; q < block.quads; ++q, in += 4, w += Vectors * kLanes * kWeightBytes) {
    WeightQuad weights[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) weights[v] = load_weights(w + v * kLanes * kWeightBytes);
    const std::uint8_t* base = in;  // for three pixels, 0, 1, 2 steps are addressing modes
#pragma GCC unroll 16
    for (int j = 0; j < End; ++j) {
      if (j > 0 && j % 3 == 0) base += 3 * step;
      if (j < First || (!All && (j < first || j >= end))) continue;
      const Quad value = broadcast_quad(base + j % 3 * step);
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) sums[j][v] = dot(sums[j][v], value, weights[v]);
    }
  }
}

// Adds all taps of a block. Taps that reach beyond the border of the image by at most one pixel, as
// in a 3x3 kernel, have pixel ranges that are known at compile time.
template <int Pixels, int Vectors, class Block>
CONVSCOPE_INLINE void add_taps(const Int8Tile& tile, Index step, const std::uint8_t* in,
                               const Block& block, const std::int8_t* w,
                               Ints (&sums)[Pixels][Vectors]) {
  for (int t = 0; t < tile.taps; ++t) {
    const Int8Tap& at = tile.tap[t];
    const std::uint8_t* const from = in + at.in;
    const std::int8_t* const weights = w + at.w;
    if (at.first == 0 && at.end == Pixels) {
      add_tap<0, Pixels, true>(from, step, block, weights, 0, Pixels, sums);
    } else if (Pixels > 1 && at.first == 1 && at.end == Pixels) {
      add_tap<Pixels == 1 ? 0 : 1, Pixels, true>(from, step, block, weights, 1, Pixels, sums);
    } else if (Pixels > 1 && at.first == 0 && at.end == Pixels - 1) {
      add_tap<0, Pixels - 1, true>(from, step, block, weights, 0, Pixels - 1, sums);
    } else {
      add_tap<0, Pixels, false>(from, step, block, weights, at.first, at.end, sums);
    }
  }
}

template <int Pixels, int Vectors>
CONVSCOPE_INLINE void begin_sums(const Int8Tiles& tiles, Ints (&sums)[Pixels][Vectors]) {
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v) {
    const Ints start = load_ints(tiles.start + v * kLanes);
#pragma GCC unroll 16
    for (int j = 0; j < Pixels; ++j) sums[j][v] = start;
  }
}

// Computes tiles whose only tap is inside the image for all pixels, as with a 1x1 kernel.
template <int Pixels, int Vectors>
[[gnu::noinline]] void run_points(const Int8Tiles& tiles, Int8Tile tile) {
  const Index step = tiles.in_step;
  for (; tile.repeat > 0; --tile.repeat, advance<Pixels>(tiles, tile)) {
    Ints sums[Pixels][Vectors];
    begin_sums(tiles, sums);
    prefetch_lines<Pixels, Vectors>(tiles, tile);
    const std::uint8_t* in = tile.in + tile.tap->in;
    const std::int8_t* w = tiles.w + tile.tap->w;
    for (Index d = 0; d < tiles.depth; ++d, in += tiles.in_block, w += tiles.w_block) {
      // Each tile reads each line of x once. Lines are a plane apart, which the hardware prefetcher
      // does not foresee, so the next tile's pixels are prefetched here.
      const std::uint8_t* const next = in + Pixels * step;
#pragma GCC unroll 16
      for (int j = 0; j < Pixels; j += 4) __builtin_prefetch(next + j * step);
      const int quads = d + 1 == tiles.depth ? tiles.last_quads : tiles.quads;
      add_tap<0, Pixels, true>(in, step, PartOfBlock{quads}, w, 0, Pixels, sums);
    }
    store_sums(tiles, tile, sums);
  }
}

template <int Pixels, int Vectors>
void run(const Int8Tiles& tiles, const Int8Tile& first) {
  if (first.taps == 1 && first.tap->first == 0 && first.tap->end == Pixels) {
    return run_points<Pixels, Vectors>(tiles, first);
  }
  Int8Tile tile = first;
  for (; tile.repeat > 0; --tile.repeat, advance<Pixels>(tiles, tile)) {
    Ints sums[Pixels][Vectors];
    begin_sums(tiles, sums);
    prefetch_lines<Pixels, Vectors>(tiles, tile);
    const std::uint8_t* in = tile.in;
    const std::int8_t* w = tiles.w;
    for (Index d = 0; d < tiles.depth; ++d, in += tiles.in_block, w += tiles.w_block) {
      const int quads = d + 1 == tiles.depth ? tiles.last_quads : tiles.quads;
      if (quads == WholeBlock::quads) {
        add_taps(tile, tiles.in_step, in, WholeBlock{}, w, sums);
      } else {
        add_taps(tile, tiles.in_step, in, PartOfBlock{quads}, w, sums);
      }
    }
    store_sums(tiles, tile, sums);
  }
}

using Run = void (*)(const Int8Tiles&, const Int8Tile&);

template <int Pixels>
Run run_of(int width) {
  if constexpr (Pixels <= kPixels) {
    if (width == kLanes) return run<Pixels, 1>;
    if (width == 2 * kLanes) return run<Pixels, 2>;
    if constexpr (2 * Pixels <= kPixels) return run<Pixels, 4>;
  }
  return nullptr;
}

using RunOf = Run (*)(int width);
constexpr RunOf kRuns[14] = {run_of<1>,  run_of<2>,  run_of<3>,  run_of<4>, run_of<5>,
                             run_of<6>,  run_of<7>,  run_of<8>,  run_of<9>, run_of<10>,
                             run_of<11>, run_of<12>, run_of<13>, run_of<14>};

void tile(const Int8Tiles& tiles, const Int8Tile& tile, int width) {
  kRuns[tile.pixels - 1](width)(tiles, tile);
}

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(int8_kernels, (Int8Kernels{.lanes = CONVSCOPE_ISA::kLanes,
                                                  .pixels = CONVSCOPE_ISA::kPixels,
                                                  .unit = CONVSCOPE_ISA::kUnit,
                                                  .weight_bytes = CONVSCOPE_ISA::kWeightBytes,
                                                  .tile = CONVSCOPE_ISA::tile}))
