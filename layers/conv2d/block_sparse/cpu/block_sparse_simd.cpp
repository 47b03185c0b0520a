// SPDX-License-Identifier: Apache-2.0
// block_sparse_simd.cpp: the register tiles of a convolution with block-sparse weights. The 16
// weights of an entry are loaded once for all pixels of the tile.
//
// Method     forward       sums[pixel][16 output channels] += broadcast(x[pixel, c]) * weights
//            backward_data sums[pixel][16 products] += dy[pixel, 16 output channels] * weights. The
//                          lanes are added up at the end, for 16 channels c at a time
// Choices    AVX-512: 28 accumulators and the weights in 32 registers; the pixel is a memory
//            operand of the FMA. The weights of the next entry are loaded early. AVX2, forward: 6
//            pixels x 2 vectors + 2 weights + 1 pixel in 16 registers; backward_data: 12 + 2. A tap
//            of a 3x3 kernel that is outside the image only in the first or the last column has a
//            separate loop. At other borders a bit mask of the pixels is tested.
// GCC 12 keeps an array on the stack when a loop without unrolling indexes it, so every loop over
// accumulators has an unroll pragma.
// Read next  block_sparse_tiles.h; block_sparse_cpu.cpp, which calls the tiles
#include "framework/simd/lane_sums.h"
#include "framework/simd/simd.h"
#include "layers/conv2d/block_sparse/cpu/block_sparse_tiles.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using Index = std::int64_t;

constexpr int kBlock = 16;                 // channels of a block, weights of an entry
constexpr int kVectors = kBlock / kLanes;  // vectors of an entry
// The accumulators, weights and pixels of a tile fill the registers. With one lane, they cannot.
constexpr int kPixels = kManyRegisters ? 28
                        : kLanes > 1   ? (kRegisters - kVectors - 1) / kVectors
                                       : 1;
constexpr int kDotPixels = kManyRegisters ? 28 : kLanes > 1 ? 12 : 4;

// Tells whether the register file has room to load the next entry's weights early.
constexpr bool kAhead = kRegisters >= 32;

constexpr std::uint32_t bits(int count) {
  return static_cast<std::uint32_t>((std::uint64_t{1} << count) - 1);
}
// Returns the bits of all pixels of a tile in the columns [first, end).
template <int Rows, int Columns>
constexpr std::uint32_t pixels_in(int first, int end) {
  std::uint32_t all = 0;
  for (int i = 0; i < Rows; ++i) all |= (bits(end) & ~bits(first)) << (i * Columns);
  return all;
}

// The next two classes multiply an entry by the pixels of a tile: in forward and in backward_data.
template <int Rows, int Columns>
struct ChannelSums {  // lanes are output channels
  static constexpr int kRows = Rows, kColumns = Columns;
  Vec at[Rows][Columns][kVectors];

  CONVSCOPE_INLINE void clear() {
#pragma GCC unroll 7
    for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 28
      for (int j = 0; j < Columns; ++j) {
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) at[i][j][v] = zero();
      }
    }
  }
  CONVSCOPE_INLINE void add(int i, int j, const float* pixel, const Vec (&weights)[kVectors]) {
    const Vec value = broadcast(*pixel);
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) at[i][j][v] = fma(value, weights[v], at[i][j][v]);
  }
};
template <int Rows, int Columns>
struct LaneProducts {  // lanes are the reduced channels
  static constexpr int kRows = Rows, kColumns = Columns;
  Vec at[Rows][Columns];

  CONVSCOPE_INLINE void clear() {
#pragma GCC unroll 7
    for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 28
      for (int j = 0; j < Columns; ++j) at[i][j] = zero();
    }
  }
  CONVSCOPE_INLINE void add(int i, int j, const float* pixel, const Vec (&weights)[kVectors]) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      at[i][j] = fma(load(pixel + v * kLanes), weights[v], at[i][j]);
    }
  }
};

struct Entries {
  Index begin, end;
};

// Adds entries for the pixels in columns [First, End) of all rows. Step is the number of floats
// between neighbouring pixels.
template <int First, int End, int Step, class Sums>
CONVSCOPE_INLINE void add_entries(const SparseTile& tile, const SparsePart& part,
                                  const Entries& entries, Sums& sums) {
  const float* value = part.value + entries.begin * kBlock;
  const std::int32_t* at = part.offset + entries.begin;
  Vec weights[kVectors], next[kVectors];
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) weights[v] = load(value + v * kLanes);
  Index offset = *at;
  for (Index left = entries.end - entries.begin; left > 0; --left) {
    ++at;
    value += kBlock;
    // The weights of this entry were loaded in the previous iteration, so its FMAs need not wait.
    const Index ahead = *at;
#pragma GCC unroll 16
    for (int v = 0; v < (kAhead ? kVectors : 0); ++v) next[v] = load(value + v * kLanes);
#pragma GCC unroll 7
    for (int i = 0; i < Sums::kRows; ++i) {
      const float* const pixel = tile.in[i] + offset;
#pragma GCC unroll 28
      for (int j = First; j < End; ++j) sums.add(i, j, pixel + j * Step, weights);
    }
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      weights[v] = kAhead ? next[v] : load(value + v * kLanes);
    }
    offset = ahead;
  }
}

// Adds entries for the pixels whose bits are set.
template <int Step, class Sums>
CONVSCOPE_INLINE void add_some(const SparseTile& tile, const SparsePart& part,
                               const Entries& entries, std::uint32_t pixels, Sums& sums) {
  const Index step = Step > 0 ? Step : tile.in_step;
  for (Index e = entries.begin; e < entries.end; ++e) {
    Vec weights[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) weights[v] = load(part.value + e * kBlock + v * kLanes);
#pragma GCC unroll 7
    for (int i = 0; i < Sums::kRows; ++i) {
      const float* pixel = tile.in[i] + part.offset[e];
#pragma GCC unroll 28
      for (int j = 0; j < Sums::kColumns; ++j, pixel += step) {
        if ((pixels >> (i * Sums::kColumns + j) & 1) != 0) sums.add(i, j, pixel, weights);
      }
    }
  }
}

template <int Step, class Sums>
CONVSCOPE_INLINE void add_taps(const SparseTile& tile, const SparsePart& part, Sums& sums) {
  constexpr int kRows = Sums::kRows, kColumns = Sums::kColumns;
  constexpr bool kWide = kColumns > 1 && Step > 0;
  for (int r = 0; r < tile.runs; ++r) {
    const SparseRun& run = tile.run[r];
    Entries entries{part.segment[run.begin], part.segment[run.end]};
    if (entries.begin < part.begin) entries.begin = part.begin;
    if (entries.end > part.end) entries.end = part.end;
    if (entries.begin >= entries.end) continue;
    if (Step > 0 && run.pixels == pixels_in<kRows, kColumns>(0, kColumns)) {
      add_entries<0, kColumns, Step>(tile, part, entries, sums);
    } else if (kWide && run.pixels == pixels_in<kRows, kColumns>(1, kColumns)) {
      add_entries<1, kColumns, Step>(tile, part, entries, sums);
    } else if (kWide && run.pixels == pixels_in<kRows, kColumns>(0, kColumns - 1)) {
      add_entries<0, kWide ? kColumns - 1 : 0, Step>(tile, part, entries, sums);
    } else {
      add_some<Step>(tile, part, entries, run.pixels, sums);
    }
  }
}

template <int Rows, int Columns, int Step>
void sum_tile(const SparseTile& tile, const SparsePart& part, const SparseEpilogue& epilogue) {
  if (part.first) {  // prefetches the lines of `out` while the products run
    for (int i = 0; i < Rows; ++i) {
      for (int j = 0; j < Columns; ++j) __builtin_prefetch(tile.out[i] + j * kBlock, 1);
    }
  }
  ChannelSums<Rows, Columns> sums;
  sums.clear();
  add_taps<Step>(tile, part, sums);
  Vec start[kVectors];
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) {
    start[v] = epilogue.start == nullptr ? zero() : load(epilogue.start + v * kLanes);
  }
  const bool adds = part.last && epilogue.residual != nullptr;
  const bool applies_relu = part.last && epilogue.relu;
  const Vec most = broadcast(epilogue.most);
#pragma GCC unroll 7
  for (int i = 0; i < Rows; ++i) {
    float* const to = tile.out[i];
    const float* const residual = adds ? epilogue.residual + (to - epilogue.y) : nullptr;
#pragma GCC unroll 28
    for (int j = 0; j < Columns; ++j) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        const Index at = j * kBlock + v * kLanes;
        Vec y = sums.at[i][j][v] + (part.first ? start[v] : load(to + at));
        if (adds) y = y + load(residual + at);
        if (applies_relu) y = bounded_relu(y, most);
        store(to + at, y);
      }
    }
  }
}

template <int Rows, int Columns>
CONVSCOPE_INLINE void dot_list(const SparseTile& tile, const SparsePart& part, float* to) {
  LaneProducts<Rows, Columns> sums;
  sums.clear();
  add_taps<kBlock>(tile, part, sums);
#pragma GCC unroll 7
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 28
    for (int j = 0; j < Columns; ++j) {
      float* const at = to + (i * Columns + j) * kLanes;
      store(at, part.first ? sums.at[i][j] : load(at) + sums.at[i][j]);
    }
  }
}

template <int Rows, int Columns>
void dot_tile(const SparseTile& tile, const SparsePart& part, int channels, int taps, float* to) {
  if (channels == 0) return dot_list<Rows, Columns>(tile, part, to);  // one channel
  SparsePart list = part;
  list.first = true;
  for (int c = 0; c < channels; ++c, to += kDotPixels * kLanes, list.segment += taps) {
    list.begin = list.segment[0];
    list.end = list.segment[taps];
    dot_list<Rows, Columns>(tile, list, to);
  }
}

// ---- reduces the lanes of 16 channels ----------------------------------------------------------

void fold(const SparseTile& tile, const float* sums) {
  for (int i = 0; i < tile.rows; ++i) {
    for (int j = 0; j < tile.columns; ++j, sums += kLanes) {
      store_16_sums(sums, kDotPixels * kLanes, tile.out[i] + j * tile.out_step);
    }
  }
}

// ---- which tile --------------------------------------------------------------------------------

using SumTile = void (*)(const SparseTile&, const SparsePart&, const SparseEpilogue&);
using DotTile = void (*)(const SparseTile&, const SparsePart&, int, int, float*);

struct Tiles {
  SumTile next, second, any;         // tiles for column stride 1, 2, any; `in` in NCHW16c
  SumTile plane_next, plane_second;  // as above, for `in` in NCHW
  DotTile dot;
};

template <int Rows, int Columns>
constexpr Tiles tiles_of() {
  Tiles out{};
  if constexpr (Rows * Columns <= kPixels) {
    out.next = sum_tile<Rows, Columns, kBlock>;
    out.second = sum_tile<Rows, Columns, 2 * kBlock>;
    out.plane_next = sum_tile<Rows, Columns, 1>;
    out.plane_second = sum_tile<Rows, Columns, 2>;
    if constexpr (Rows == 1) out.any = sum_tile<Rows, Columns, 0>;
  }
  if constexpr (Rows * Columns <= kDotPixels) out.dot = dot_tile<Rows, Columns>;
  return out;
}

#define CONVSCOPE_SEVEN_TILES(rows, first)                                                   \
  tiles_of<rows, first>(), tiles_of<rows, first + 1>(), tiles_of<rows, first + 2>(),         \
      tiles_of<rows, first + 3>(), tiles_of<rows, first + 4>(), tiles_of<rows, first + 5>(), \
      tiles_of<rows, first + 6>()
constexpr Tiles kOneRow[28] = {CONVSCOPE_SEVEN_TILES(1, 1), CONVSCOPE_SEVEN_TILES(1, 8),
                               CONVSCOPE_SEVEN_TILES(1, 15), CONVSCOPE_SEVEN_TILES(1, 22)};
constexpr Tiles kTwoRows[14] = {CONVSCOPE_SEVEN_TILES(2, 1), CONVSCOPE_SEVEN_TILES(2, 8)};
constexpr Tiles kThreeRows[9] = {CONVSCOPE_SEVEN_TILES(3, 1), tiles_of<3, 8>(), tiles_of<3, 9>()};
constexpr Tiles kFourRows[7] = {CONVSCOPE_SEVEN_TILES(4, 1)};
constexpr Tiles kSevenRows[4] = {tiles_of<7, 1>(), tiles_of<7, 2>(), tiles_of<7, 3>(),
                                 tiles_of<7, 4>()};
#undef CONVSCOPE_SEVEN_TILES

const Tiles& tiles_for(const SparseTile& tile) {
  const Tiles* const tiles = tile.rows == 1   ? kOneRow
                             : tile.rows == 2 ? kTwoRows
                             : tile.rows == 3 ? kThreeRows
                             : tile.rows == 4 ? kFourRows
                                              : kSevenRows;
  return tiles[tile.columns - 1];
}

void sum_channels(const SparseTile& tile, const SparsePart& part, const SparseEpilogue& epilogue) {
  const Tiles& tiles = tiles_for(tile);
  const SumTile run = tile.in_step == kBlock       ? tiles.next
                      : tile.in_step == 2 * kBlock ? tiles.second
                      : tile.in_step == 1          ? tiles.plane_next
                      : tile.in_step == 2          ? tiles.plane_second
                                                   : tiles.any;
  run(tile, part, epilogue);
}

void dot_channel(const SparseTile& tile, const SparsePart& part, float* sums) {
  tiles_for(tile).dot(tile, part, 0, 0, sums);
}

void dot_channels(const SparseTile& tile, const SparsePart& part, int channels, int taps,
                  float* sums) {
  tiles_for(tile).dot(tile, part, channels, taps, sums);
}

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(block_sparse_kernels,
                       (BlockSparseKernels{.pixels = CONVSCOPE_ISA::kPixels,
                                           .dot_pixels = CONVSCOPE_ISA::kDotPixels,
                                           .lanes = CONVSCOPE_ISA::kLanes,
                                           .sum_channels = CONVSCOPE_ISA::sum_channels,
                                           .dot_channel = CONVSCOPE_ISA::dot_channel,
                                           .dot_channels = CONVSCOPE_ISA::dot_channels,
                                           .fold = CONVSCOPE_ISA::fold}))
