// SPDX-License-Identifier: Apache-2.0
// tiles_simd.cpp: register tiles of direct and pointwise convolution. tiles_copy_simd.cpp prepares
// their operands; direct_cpu.cpp and gemm_1x1_cpu.cpp combine them into a convolution.
//
// Choices    AVX-512: 14 pixels x 2 vectors (or 7 x 4) = 28 accumulators + 2 (4) of the other
//            operand of 32 registers; the broadcast is part of the FMA. AVX2: 6 x 2 = 12 + 2 + 1
//            of 16 registers. weight_tile takes two pixels at a time, so that each tap's pointer is
//            loaded once for four FMAs: 14 x 2 accumulators + 2 x 2 vectors of dy = 32 registers.
// GCC 12 keeps an array on the stack if a loop that is not unrolled indexes it. So every loop over
// accumulators has an unroll pragma.
// Read next  tiles.h; tiles_copy_simd.cpp; direct_cpu.cpp and gemm_1x1_cpu.cpp, which use it
#include "framework/int_math.h"
#include "framework/simd/lane_transpose.h"
#include "framework/simd/simd.h"
#include "framework/simd/sum_chain.h"
#include "layers/conv2d/shared/tiles_parts.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

constexpr int kPixels = kManyRegisters ? 14 : 6;
constexpr int kRows = kManyRegisters ? 14 : 6;

// ---- channels in the lanes ---------------------------------------------------------------------

// Stores out[k out_row + j] = tile[j width + k] for k < channels <= kLanes, j < Pixels.
template <int Pixels>
CONVSCOPE_INLINE void store_transposed(const float* tile, int width, int channels, float* out,
                                       Index out_row) {
  if constexpr (kMasksAreFree && Pixels <= kLanes) {
    Vec v[kLanes];
#pragma GCC unroll 16
    for (int j = 0; j < kLanes; ++j) v[j] = j < Pixels ? load(tile + j * width) : zero();
    transpose(v);
#pragma GCC unroll 16
    for (int k = 0; k < kLanes; ++k) {
      if (k < channels) store_first(out + k * out_row, v[k], Pixels);
    }
  } else {
    for (int k = 0; k < channels; ++k) {
#pragma GCC unroll 8
      for (int j = 0; j < Pixels; ++j) out[k * out_row + j] = tile[j * width + k];
    }
  }
}

// Prefetches the cache lines of the tile's outputs while the sums are computed.
CONVSCOPE_INLINE void prefetch_rows(const SumTile& tile) {
  for (int i = 0; i < tile.channels; ++i) {
    const float* const row = tile.out + i * tile.out_row;
    for (int j = 0; j < tile.pixels; j += 16) __builtin_prefetch(row + j, 1);
    __builtin_prefetch(row + tile.pixels - 1, 1);
  }
}

// One chain of products of a tile's sum: channels d < `depth`, taps [tap, end).
struct Chain {
  Index depth;
  int tap, end;
  bool first;  // starts the sum; the other chains add to it
};

// Cuts the sum of a tile into chains of at most kSumChain products (framework/simd/sum_chain.h) and
// calls run(chain, d) for each, where d is the chain's first channel.
template <class Run>
CONVSCOPE_INLINE void in_chains(const SumTile& tile, Run run) {
  const int taps = tile.taps < kSumChain ? tile.taps : kSumChain;
  const Index depth = tile.depth * taps > kSumChain ? kSumChain / taps : tile.depth;
  Index d = 0;
  do {  // at least once, so that the sums are started even where all taps are outside
    const Index rest = tile.depth - d;
    int t = 0;
    do {
      const int end = t + taps < tile.taps ? t + taps : tile.taps;
      run(Chain{rest < depth ? rest : depth, t, end, d == 0 && t == 0}, d);
      t = end;
    } while (t < tile.taps);
    d += depth;
  } while (d < tile.depth);
}

template <int Pixels, int Vectors>
CONVSCOPE_INLINE void channel_chain(const SumTile& tile, const Chain& chain, Index first,
                                    float* kept) {
  constexpr int kWidth = Vectors * kLanes;
  Vec sums[Pixels][Vectors];  // [Pixels, kWidth]
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v) {
    Vec start = zero();
    if (chain.first && tile.start != nullptr && tile.channels > v * kLanes) {
      const int rest = tile.channels - v * kLanes;
      start = load_first(tile.start + v * kLanes, rest < kLanes ? rest : kLanes);
    }
#pragma GCC unroll 16
    for (int j = 0; j < Pixels; ++j) sums[j][v] = start;
  }
  const float* x = tile.x + first * tile.x_step;
  const float* w = tile.w + first * tile.w_step;
  const float* ahead = tile.ahead + first * tile.ahead_step;
  const int ahead_lines = chain.tap == 0 ? tile.ahead_lines : 0;
  for (Index d = chain.depth; d > 0; --d, x += tile.x_step, w += tile.w_step) {
    for (int i = 0; i < ahead_lines; ++i) __builtin_prefetch(ahead + i * kLineFloats, 0, 2);
    ahead += tile.ahead_step;
    for (int t = chain.tap; t < chain.end; ++t) {
      const float* const pixel = x + tile.x_at[t];
      const float* const weights = w + tile.w_at[t];
      __builtin_prefetch(pixel + tile.x_step);
      Vec lanes[Vectors];
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) lanes[v] = load(weights + v * kLanes);
#pragma GCC unroll 16
      for (int j = 0; j < Pixels; ++j) {
        const Vec value = broadcast(pixel[j]);
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) sums[j][v] = fma(value, lanes[v], sums[j][v]);
      }
    }
  }
  if (!chain.first) {
#pragma GCC unroll 16
    for (int j = 0; j < Pixels; ++j) {
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) {
        sums[j][v] = load(kept + j * kWidth + v * kLanes) + sums[j][v];
      }
    }
  }
#pragma GCC unroll 16
  for (int j = 0; j < Pixels; ++j) {
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) store(kept + j * kWidth + v * kLanes, sums[j][v]);
  }
}

template <int Pixels, int Vectors>
void channel_sums(const SumTile& tile) {
  constexpr int kWidth = Vectors * kLanes;
  prefetch_rows(tile);
  alignas(64) float kept[Pixels * kWidth];
  in_chains(
      tile, [&](const Chain& chain, Index d) __attribute__((always_inline)) {
        channel_chain<Pixels, Vectors>(tile, chain, d, kept);
      });
  for (int v = 0; v < Vectors && tile.channels > v * kLanes; ++v) {
    const int rest = tile.channels - v * kLanes;
    store_transposed<Pixels>(kept + v * kLanes, kWidth, rest < kLanes ? rest : kLanes,
                             tile.out + v * kLanes * tile.out_row, tile.out_row);
  }
}

template <int Pixels>
void channel_pixels(const SumTile& tile, int width) {
  if constexpr (Pixels <= kPixels) {
    if (width == kLanes) return channel_sums<Pixels, 1>(tile);
    if (width == 2 * kLanes) return channel_sums<Pixels, 2>(tile);
    if constexpr (2 * Pixels <= kPixels) return channel_sums<Pixels, 4>(tile);
  }
}

void channel_tile(const SumTile& tile, int width) {
  switch (tile.pixels) {
    case 1:
      return channel_pixels<1>(tile, width);
    case 2:
      return channel_pixels<2>(tile, width);
    case 3:
      return channel_pixels<3>(tile, width);
    case 4:
      return channel_pixels<4>(tile, width);
    case 5:
      return channel_pixels<5>(tile, width);
    case 6:
      return channel_pixels<6>(tile, width);
    case 7:
      return channel_pixels<7>(tile, width);
    case 8:
      return channel_pixels<8>(tile, width);
    case 9:
      return channel_pixels<9>(tile, width);
    case 10:
      return channel_pixels<10>(tile, width);
    case 11:
      return channel_pixels<11>(tile, width);
    case 12:
      return channel_pixels<12>(tile, width);
    case 13:
      return channel_pixels<13>(tile, width);
    default:
      return channel_pixels<14>(tile, width);
  }
}

// ---- pixels in the lanes -----------------------------------------------------------------------

template <int Rows, int Vectors>
CONVSCOPE_INLINE void pixel_chain(const SumTile& tile, const Chain& chain, Index first) {
  const int last = tile.pixels - (Vectors - 1) * kLanes;
  Vec sums[Rows][Vectors];  // [Rows, Vectors * kLanes]
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
    const Vec start = chain.first && tile.start != nullptr ? broadcast(tile.start[i]) : zero();
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) sums[i][v] = start;
  }
  const float* x = tile.x + first * tile.x_step;
  const float* w = tile.w + first * tile.w_step;
  for (Index d = chain.depth; d > 0; --d, x += tile.x_step, w += tile.w_step) {
    for (int t = chain.tap; t < chain.end; ++t) {
      const float* const pixel = x + tile.x_at[t];
      const float* const weights = w + tile.w_at[t];
      Vec lanes[Vectors];  // full vectors: x's copy has spare floats after each row
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) lanes[v] = load(pixel + v * kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < Rows; ++i) {
        const Vec value = broadcast(weights[i]);
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) sums[i][v] = fma(value, lanes[v], sums[i][v]);
      }
    }
  }
  if (!chain.first) {
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) {
        const float* const from = tile.out + i * tile.out_row + v * kLanes;
        sums[i][v] =
            (v < Vectors - 1 || last == kLanes ? load(from) : load_first(from, last)) + sums[i][v];
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
      float* const to = tile.out + i * tile.out_row + v * kLanes;
      if (v < Vectors - 1 || last == kLanes) {
        store(to, sums[i][v]);
      } else {
        store_first(to, sums[i][v], last);
      }
    }
  }
}

template <int Rows, int Vectors>
void pixel_sums(const SumTile& tile) {
  prefetch_rows(tile);
  in_chains(
      tile, [&](const Chain& chain, Index d)
                __attribute__((always_inline)) { pixel_chain<Rows, Vectors>(tile, chain, d); });
}

template <int Rows>
void pixel_rows(const SumTile& tile) {
  if constexpr (Rows <= kRows) {
    const int vectors = ceil_div(tile.pixels, kLanes);
    if (vectors == 1) return pixel_sums<Rows, 1>(tile);
    if (vectors == 2) return pixel_sums<Rows, 2>(tile);
    if constexpr (Rows <= kRows / 2) {
      if (vectors == 3) return pixel_sums<Rows, 3>(tile);
      return pixel_sums<Rows, 4>(tile);
    }
  }
}

void pixel_tile(const SumTile& tile) {
  switch (tile.channels) {
    case 1:
      return pixel_rows<1>(tile);
    case 2:
      return pixel_rows<2>(tile);
    case 3:
      return pixel_rows<3>(tile);
    case 4:
      return pixel_rows<4>(tile);
    case 5:
      return pixel_rows<5>(tile);
    case 6:
      return pixel_rows<6>(tile);
    case 7:
      return pixel_rows<7>(tile);
    case 8:
      return pixel_rows<8>(tile);
    case 9:
      return pixel_rows<9>(tile);
    case 10:
      return pixel_rows<10>(tile);
    case 11:
      return pixel_rows<11>(tile);
    case 12:
      return pixel_rows<12>(tile);
    case 13:
      return pixel_rows<13>(tile);
    default:
      return pixel_rows<14>(tile);
  }
}

// ---- the gradient of the weights ---------------------------------------------------------------

// Computes one chain of products: pixels of rows [p, p_end), columns [q_begin, q_end). Adds the
// sums to the totals `to` [Taps, kWidth], or assigns them with `start`.
template <int Taps, int Vectors>
CONVSCOPE_INLINE void weight_chain(const WeightTile& tile, Index p_begin, Index p_end,
                                   Index q_begin, Index q_end, bool start, float* to) {
  constexpr int kWidth = Vectors * kLanes;
  Vec sums[Taps][Vectors];  // [Taps, kWidth]
#pragma GCC unroll 16
  for (int t = 0; t < Taps; ++t) {
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) sums[t][v] = zero();
  }
  const Index step = tile.x_step;
  for (Index p = p_begin; p < p_end; ++p) {
    const float* dy = tile.dy + (p * tile.columns + q_begin) * kWidth;
    Index at = p * tile.x_row + q_begin * step;
    Index q = q_begin;
    for (; q + 2 <= q_end; q += 2, at += 2 * step, dy += 2 * kWidth) {
      Vec first[Vectors];
      Vec second[Vectors];
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) {
        first[v] = load(dy + v * kLanes);
        second[v] = load(dy + kWidth + v * kLanes);
      }
#pragma GCC unroll 16
      for (int t = 0; t < Taps; ++t) {
        const float* const pixel = tile.x[t] + at;
        const Vec value = broadcast(pixel[0]);
        const Vec next = broadcast(pixel[step]);
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) sums[t][v] = fma(value, first[v], sums[t][v]);
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) sums[t][v] = fma(next, second[v], sums[t][v]);
      }
    }
    if (q < q_end) {
      Vec first[Vectors];
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) first[v] = load(dy + v * kLanes);
#pragma GCC unroll 16
      for (int t = 0; t < Taps; ++t) {
        const Vec value = broadcast(tile.x[t][at]);
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) sums[t][v] = fma(value, first[v], sums[t][v]);
      }
    }
  }
  if (!start) {
#pragma GCC unroll 16
    for (int t = 0; t < Taps; ++t) {
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) {
        sums[t][v] = load(to + t * kWidth + v * kLanes) + sums[t][v];
      }
    }
  }
#pragma GCC unroll 16
  for (int t = 0; t < Taps; ++t) {
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) store(to + t * kWidth + v * kLanes, sums[t][v]);
  }
}

// Sums chains of whole rows, or of parts of one row, of at most kSumChain pixels. Adds up the
// totals of all chains before it adds them to tile.sums.
template <int Taps, int Vectors>
void weight_sums(const WeightTile& tile) {
  constexpr int kWidth = Vectors * kLanes;
  alignas(64) float totals[Taps * kWidth];
  const Index columns = tile.columns < kSumChain ? tile.columns : kSumChain;
  const Index rows = columns > 0 ? kSumChain / columns : 1;
  for (Index p = 0; p < tile.rows; p += rows) {
    const Index p_end = p + rows < tile.rows ? p + rows : tile.rows;
    for (Index q = 0; q < tile.columns; q += columns) {
      const Index q_end = q + columns < tile.columns ? q + columns : tile.columns;
      weight_chain<Taps, Vectors>(tile, p, p_end, q, q_end, p == 0 && q == 0, totals);
    }
  }
#pragma GCC unroll 16
  for (int t = 0; t < Taps; ++t) {
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
      float* const to = tile.sums[t] + v * kLanes;
      store(to, load(to) + load(totals + t * kWidth + v * kLanes));
    }
  }
}

template <int Taps>
void weight_taps(const WeightTile& tile) {
  if constexpr (Taps <= kRows) {
    if (tile.width == kLanes) return weight_sums<Taps, 1>(tile);
    return weight_sums<Taps, 2>(tile);
  }
}

void weight_tile(const WeightTile& tile) {
  switch (tile.taps) {
    case 1:
      return weight_taps<1>(tile);
    case 2:
      return weight_taps<2>(tile);
    case 3:
      return weight_taps<3>(tile);
    case 4:
      return weight_taps<4>(tile);
    case 5:
      return weight_taps<5>(tile);
    case 6:
      return weight_taps<6>(tile);
    case 7:
      return weight_taps<7>(tile);
    case 8:
      return weight_taps<8>(tile);
    case 9:
      return weight_taps<9>(tile);
    case 10:
      return weight_taps<10>(tile);
    case 11:
      return weight_taps<11>(tile);
    case 12:
      return weight_taps<12>(tile);
    case 13:
      return weight_taps<13>(tile);
    default:
      return weight_taps<14>(tile);
  }
}

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(tile_kernels, (TileKernels{.lanes = CONVSCOPE_ISA::kLanes,
                                                  .pixels = CONVSCOPE_ISA::kPixels,
                                                  .rows = CONVSCOPE_ISA::kRows,
                                                  .channel_tile = CONVSCOPE_ISA::channel_tile,
                                                  .pixel_tile = CONVSCOPE_ISA::pixel_tile,
                                                  .weight_tile = CONVSCOPE_ISA::weight_tile,
                                                  .copy = CONVSCOPE_ISA::copy,
                                                  .copy_runs = CONVSCOPE_ISA::copy_runs,
                                                  .to_lanes = CONVSCOPE_ISA::to_lanes,
                                                  .weave = CONVSCOPE_ISA::weave}))
