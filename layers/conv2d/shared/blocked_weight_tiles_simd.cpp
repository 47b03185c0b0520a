// SPDX-License-Identifier: Apache-2.0
// blocked_weight_tiles_simd.cpp: register tiles of backward_weight in the blocked layout: up to 16
// input channels by one or two vectors of output channels stay in registers over the pixels of some
// rows. blocked_weights.cpp says how they make up dw.
//
// Choices    With two vectors: AVX-512 8 channels x 2 = 16 sums + 2 of dy (the broadcast is part of
//            the FMA), AVX2 6 x 2 = 12 + 2 + 1 of 16 registers. With one: 16 sums, or 13. At least
//            8 sums are under way where there are so many channels: 4 cycles of an FMA times 2 of
//            them a cycle.
// GCC 12 keeps an array that an ordinary loop indexes on the stack: every loop over sums has an
// unroll pragma.
// Read next  blocked_tiles.h; blocked_weights.cpp, which uses it
#include "framework/simd/simd.h"
#include "framework/simd/sum_chain.h"
#include "layers/conv2d/shared/blocked_weight_tiles.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using Index = std::int64_t;
constexpr int kBlock = 16;

constexpr int most_channels(int vectors) {
  const int fit = (kRegisters - vectors - 1) / vectors;
  return fit < kBlock ? fit : kBlock;
}

// One chain of products: `rows` rows of `columns` pixels. `channel`: the first of the tile's.
template <int Channels, int Vectors, bool Listed>
CONVSCOPE_INLINE void add_chain(const BlockedWeightTile& tile, const float* in, const float* dy,
                                Index rows, Index columns, int channel) {
  Index at[Channels];  // where channel c begins in `in`
#pragma GCC unroll 16
  for (int c = 0; c < Channels; ++c) at[c] = Listed ? tile.row[channel + c].in : c;
  if (!Listed) in += channel;
  Vec sums[Channels][Vectors];
#pragma GCC unroll 16
  for (int c = 0; c < Channels; ++c) {
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) sums[c][v] = zero();
  }
  for (Index p = rows; p > 0; --p, in += tile.in_row, dy += tile.dy_row) {
    const float* pixel = in;
    const float* gradient = dy;
    for (Index q = columns; q > 0; --q, pixel += tile.in_step, gradient += kBlock) {
      Vec lanes[Vectors];
#pragma GCC unroll 2
      for (int v = 0; v < Vectors; ++v) {
        lanes[v] = load(gradient + v * kLanes / kBlock * tile.dy_block + v * kLanes % kBlock);
      }
#pragma GCC unroll 16
      for (int c = 0; c < Channels; ++c) {
        const Vec value = broadcast(pixel[at[c]]);
#pragma GCC unroll 2
        for (int v = 0; v < Vectors; ++v) sums[c][v] = fma(value, lanes[v], sums[c][v]);
      }
    }
  }
#pragma GCC unroll 16
  for (int c = 0; c < Channels; ++c) {
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) {
      float* const to = tile.sums + v * kLanes +
                        (Listed ? tile.row[channel + c].sums : (channel + c) * tile.sums_row);
      store(to, load(to) + sums[c][v]);
    }
  }
}

// Chains of whole rows, or of parts of rows that are longer than a chain
// (framework/simd/sum_chain.h).
template <int Channels, int Vectors, bool Listed>
CONVSCOPE_INLINE void add_chains(const BlockedWeightTile& tile, int channel) {
  for (Index q = 0; q < tile.columns; q += kSumChain) {
    const Index columns = tile.columns - q < kSumChain ? tile.columns - q : kSumChain;
    const Index most = kSumChain / columns;
    for (Index p = 0; p < tile.rows; p += most) {
      const Index rows = tile.rows - p < most ? tile.rows - p : most;
      add_chain<Channels, Vectors, Listed>(tile, tile.in + p * tile.in_row + q * tile.in_step,
                                           tile.dy + p * tile.dy_row + q * kBlock, rows, columns,
                                           channel);
    }
  }
}

template <int Channels, int Vectors>
void add_pixels(const BlockedWeightTile& tile, int channel) {
  tile.row == nullptr ? add_chains<Channels, Vectors, false>(tile, channel)
                      : add_chains<Channels, Vectors, true>(tile, channel);
}

using WeightFunction = void (*)(const BlockedWeightTile&, int channel);

template <int Channels, int Vectors>
constexpr WeightFunction weight_entry() {
  if constexpr (Channels <= most_channels(Vectors)) return add_pixels<Channels, Vectors>;
  return nullptr;
}
template <int Vectors>
constexpr WeightFunction kWeightTiles[16] = {
    weight_entry<1, Vectors>(),  weight_entry<2, Vectors>(),  weight_entry<3, Vectors>(),
    weight_entry<4, Vectors>(),  weight_entry<5, Vectors>(),  weight_entry<6, Vectors>(),
    weight_entry<7, Vectors>(),  weight_entry<8, Vectors>(),  weight_entry<9, Vectors>(),
    weight_entry<10, Vectors>(), weight_entry<11, Vectors>(), weight_entry<12, Vectors>(),
    weight_entry<13, Vectors>(), weight_entry<14, Vectors>(), weight_entry<15, Vectors>(),
    weight_entry<16, Vectors>()};

// Tiles of nearly equal height.
template <int Vectors>
void add_channels(const BlockedWeightTile& tile) {
  constexpr int kMost = most_channels(Vectors);
  const int tiles = (tile.channels + kMost - 1) / kMost;
  int channel = 0;
  for (int t = 0; t < tiles; ++t) {
    const int count = (tile.channels - channel) / (tiles - t);
    kWeightTiles<Vectors>[count - 1](tile, channel);
    channel += count;
  }
}

}  // namespace

void blocked_weight_tile(const BlockedWeightTile& tile, int width) {
  width == kLanes ? add_channels<1>(tile) : add_channels<2>(tile);
}

}  // namespace convscope::CONVSCOPE_ISA
