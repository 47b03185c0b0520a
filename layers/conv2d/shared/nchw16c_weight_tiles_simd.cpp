// SPDX-License-Identifier: Apache-2.0
// nchw16c_weight_tiles_simd.cpp: register tiles of backward_weight in NCHW16c: the sums of up to 16
// channels of one operand x one or two vectors of the other operand stay in registers over some
// pixels. direct_nchw16c_weights.cpp combines the tiles into dw.
//
// Choices    With two vectors: AVX-512 8 channels x 2 = 16 accumulators + 2 vectors + 1 broadcast,
//            10 loads for 16 FMAs; AVX2 6 x 2 = 12 + 2 + 1 of 16 registers. With one vector: 16
//            accumulators, or 13. At least 8 FMAs are in flight where there are so many channels: 4
//            cycles of latency times 2 a cycle. A tile prefetches its sums when it begins, and the
//            pixels of the next one while it multiplies.
// GCC 12 keeps an array on the stack if a loop that is not unrolled indexes it. So every loop over
// accumulators has an unroll pragma.
// Read next  nchw16c_tiles.h; direct_nchw16c_weights.cpp, which uses it
#include "framework/int_math.h"
#include "framework/simd/simd.h"
#include "framework/simd/sum_chain.h"
#include "layers/conv2d/shared/nchw16c_weight_tiles.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using Index = std::int64_t;
constexpr int kBlock = 16;

constexpr int most_channels(int vectors) {
  const int fit = (kRegisters - vectors - 1) / vectors;
  return fit < kBlock ? fit : kBlock;
}

// The pixels of one chain of products, and the tile's first channel whose sums the chain computes.
struct Chain {
  const float* in;
  const float* beside;
  const float* next;
  Index images, rows, columns;
  int channel;
  bool start;
};

template <int Channels, int Vectors, bool Listed>
CONVSCOPE_INLINE void add_chain(const Nchw16cWeightTile& tile, const Chain& chain) {
  Index at[Channels];  // offset of channel c in `in`
#pragma GCC unroll 16
  for (int c = 0; c < Channels; ++c) at[c] = Listed ? tile.row[chain.channel + c].in : c;
  float* const totals = tile.sums + (Listed ? 0 : chain.channel * tile.sums_row);
  Vec sums[Channels][Vectors];
#pragma GCC unroll 16
  for (int c = 0; c < Channels; ++c) {
    // Prefetched while the sums are computed.
    const Index row = Listed ? tile.row[chain.channel + c].sums : c * tile.sums_row;
    __builtin_prefetch(totals + row, 1);
    if (Vectors * kLanes > 16) __builtin_prefetch(totals + row + 16, 1);
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) sums[c][v] = zero();
  }
  const float* image = chain.in + (Listed ? 0 : chain.channel);
  const float* beside_image = chain.beside;
  const float* next = chain.next;
  for (Index n = chain.images; n > 0;
       --n, image += tile.in_image, beside_image += tile.beside_image) {
    const float* in = image;
    const float* beside = beside_image;
    for (Index p = chain.rows; p > 0; --p, in += tile.in_row, beside += tile.beside_row) {
      const float* pixel = in;
      const float* vectors = beside;
      for (Index q = chain.columns; q > 0;
           --q, pixel += tile.in_step, vectors += tile.beside_step) {
        Vec lanes[Vectors];
#pragma GCC unroll 2
        for (int v = 0; v < Vectors; ++v) {
          lanes[v] = load(vectors + v * kLanes / kBlock * tile.beside_block + v * kLanes % kBlock);
        }
        if (!Listed) __builtin_prefetch(pixel + tile.ahead);
        __builtin_prefetch(next);
        if (Vectors * kLanes > kBlock) __builtin_prefetch(next + tile.beside_block);
        next += tile.next_step;
#pragma GCC unroll 16
        for (int c = 0; c < Channels; ++c) {
          const Vec value = broadcast(pixel[at[c]]);
#pragma GCC unroll 2
          for (int v = 0; v < Vectors; ++v) sums[c][v] = fma(value, lanes[v], sums[c][v]);
        }
      }
    }
  }
#pragma GCC unroll 16
  for (int c = 0; c < Channels; ++c) {
    const Index row = Listed ? tile.row[chain.channel + c].sums : c * tile.sums_row;
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) {
      float* const to = totals + row + v * kLanes;
      store(to, chain.start ? sums[c][v] : load(to) + sums[c][v]);
    }
  }
}

// Cuts the images, rows and columns into chains: whole images, whole rows of one image, or a part
// of one row (framework/simd/sum_chain.h), in nearly equal parts.
struct Cut {
  Index images, rows, columns;
};

Index even(Index count, Index most) { return ceil_div(count, ceil_div(count, most)); }

Cut cut_of(const Nchw16cWeightTile& tile) {
  if (tile.images * tile.rows * tile.columns <= kSumChain) {  // the usual case needs no division
    return {tile.images, tile.rows, tile.columns};
  }
  if (tile.columns > kSumChain) return {1, 1, even(tile.columns, kSumChain)};
  const Index most = kSumChain / tile.columns;
  if (tile.rows > most) return {1, even(tile.rows, most), tile.columns};
  return {even(tile.images, most / tile.rows), tile.rows, tile.columns};
}

CONVSCOPE_INLINE Index least(Index a, Index b) { return a < b ? a : b; }

template <int Channels, int Vectors, bool Listed>
CONVSCOPE_INLINE void add_chains(const Nchw16cWeightTile& tile, const Cut& cut, int channel) {
  bool start = tile.start;
  for (Index n = 0; n < tile.images; n += cut.images) {
    for (Index p = 0; p < tile.rows; p += cut.rows) {
      for (Index q = 0; q < tile.columns; q += cut.columns) {
        add_chain<Channels, Vectors, Listed>(
            tile, {.in = tile.in + n * tile.in_image + p * tile.in_row + q * tile.in_step,
                   .beside = tile.beside + n * tile.beside_image + p * tile.beside_row +
                             q * tile.beside_step,
                   .next = tile.next + ((n * tile.rows + p) * tile.columns + q) * tile.next_step,
                   .images = least(cut.images, tile.images - n),
                   .rows = least(cut.rows, tile.rows - p),
                   .columns = least(cut.columns, tile.columns - q),
                   .channel = channel,
                   .start = start});
        start = false;
      }
    }
  }
}

template <int Channels, int Vectors>
void add_pixels(const Nchw16cWeightTile& tile, const Cut& cut, int channel) {
  tile.row == nullptr ? add_chains<Channels, Vectors, false>(tile, cut, channel)
                      : add_chains<Channels, Vectors, true>(tile, cut, channel);
}

using WeightFunction = void (*)(const Nchw16cWeightTile&, const Cut&, int channel);

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

// Computes tiles of nearly equal height.
template <int Vectors>
void add_channels(const Nchw16cWeightTile& tile) {
  constexpr int kMax = most_channels(Vectors);
  const Cut cut = cut_of(tile);
  const int tiles = (tile.channels + kMax - 1) / kMax;
  int channel = 0;
  for (int t = 0; t < tiles; ++t) {
    const int count = (tile.channels - channel) / (tiles - t);
    kWeightTiles<Vectors>[count - 1](tile, cut, channel);
    channel += count;
  }
}

}  // namespace

void nchw16c_weight_tile(const Nchw16cWeightTile& tile, int width) {
  width == kLanes ? add_channels<1>(tile) : add_channels<2>(tile);
}

}  // namespace convscope::CONVSCOPE_ISA
