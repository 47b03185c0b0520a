// SPDX-License-Identifier: Apache-2.0
// batch_lanes_pooled_simd.cpp: computes the gradients of a layer that ends in a 2x2 max-pool
// directly from the pooled gradient. Three of four elements of the expanded gradient dz would be 0.
//
// Formula    window (i,j) passes its gradient g to one of its four pixels, (2i+a, 2j+b). The bits a
//            and b are in its winner byte and differ between lanes. So, for stride 1,
//              dw[k,c,r,s] = sum over i, j of g[k,i,j] x[c, 2i+a+r, 2j+b+s]
//              dx[c,h,w]   = sum over k, i, j of g[k,i,j] w[k,c, h-2i-a, w-2j-b]
// Method     Blends select the pixel: rows by a, then columns by b; neighbouring taps share the
//            column blends. R S taps of one window cost R (S + 1) + R S blends + R S FMAs instead
//            of 4 R S FMAs. Zen 4 does two blends and one FMA a cycle, so 5x5 takes 46 cycles
//            instead of 100. Only AVX-512 is supported, because the blends need mask
//            registers; all other cases expand the gradient to dz first. For dx, blends select the
//            weights: bit a selects row h - 2i or h - 2i - 1 of the kernel, and bit b shifts the
//            columns. A row of dx stays in registers over all (k, i).
// Choices    A tile of dw has 2 x 5 accumulators + 2 x 6 pixels + 4 other registers of 32. A tile
//            of dx has 5 + 4 + 5 accumulators for 5x5, 2 x 5 weights and 4 others. kRowBytes: 24
//            KiB of x in the 32 KiB of L1
// Read next  batch_lanes_weight_simd.cpp and batch_lanes_gradient_simd.cpp, the separate path
#include "layers/conv2d/batch_lanes/cpu/batch_lanes_parts.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

#if defined(CONVSCOPE_HAS_MASKS)

constexpr Index kRowBytes = 24 * 1024;

// One vector of pool windows: their gradients, and masks that select the row and column of each
// maximum.
struct Picks {
  Mask row, column;  // 1: the maximum is in the second row or column
  Wide g;            // the gradient; 0 where ReLU returned 0
};
CONVSCOPE_INLINE Picks load_picks(const float* dy, const std::uint8_t* winners) {
  const Taps winner = load_taps(winners);
  return {taps_with(winner, 2), taps_with(winner, 1), load(dy, taps_without(winner, kNoWinner))};
}

// Loads the first `count` lanes; the gradient of the other lanes is 0.
CONVSCOPE_INLINE Picks load_picks(const float* dy, const std::uint8_t* winners, int count) {
  const Taps winner = load_taps(winners, count);
  const Mask passes = both(first_lanes(count), taps_without(winner, kNoWinner));
  return {taps_with(winner, 2), taps_with(winner, 1), load(dy, passes)};
}

struct PooledTile {
  const float* x;  // the pixel of window (0,0) at tap s = 0
  Index x_row;
  Index split;  // floats from the even to the odd columns, when they are split
  Index lanes;
  const float* dy;
  const std::uint8_t* winners;
  Index dy_channel, dy_row;
  Index rows, columns;  // of windows: columns are whole vectors
  int rest;             // lanes of one more vector in each row
  float* sums;
  Index sum_channel;  // from one kernel to the next
};

// Adds the products of one vector of windows.
template <int Kernels, int S, bool Split, bool Rest>
CONVSCOPE_INLINE void add_windows(const PooledTile& tile, const float* x, Index at,
                                  Wide (&sums)[Kernels][S]) {
  Wide above[S + 1];
  Wide below[S + 1];
#pragma GCC unroll 8
  for (int t = 0; t <= S; ++t) {
    const float* const pixel = Split ? x + t % 2 * tile.split + t / 2 * tile.lanes : x + t * kWide;
    above[t] = wide::load(pixel);
    below[t] = wide::load(pixel + tile.x_row);
    if constexpr (Kernels > 1) {
      keep_in_register(above[t]);
      keep_in_register(below[t]);
    }
  }
#pragma GCC unroll 8
  for (int k = 0; k < Kernels; ++k) {
    const Index from = k * tile.dy_channel + at;
    const Picks picks = Rest ? load_picks(tile.dy + from, tile.winners + from, tile.rest)
                             : load_picks(tile.dy + from, tile.winners + from);
    Wide left = choose(picks.row, above[0], below[0]);
#pragma GCC unroll 8
    for (int s = 0; s < S; ++s) {
      const Wide right = choose(picks.row, above[s + 1], below[s + 1]);
      sums[k][s] = fma(picks.g, choose(picks.column, left, right), sums[k][s]);
      left = right;
    }
  }
}

template <int Kernels, int S>
CONVSCOPE_INLINE void start_from_zero(Wide (&sums)[Kernels][S]) {
#pragma GCC unroll 8
  for (int k = 0; k < Kernels; ++k) {
#pragma GCC unroll 8
    for (int s = 0; s < S; ++s) sums[k][s] = no_wide();
  }
}

// Adds the registers `sums` to tile.sums.
template <int Kernels, int S>
CONVSCOPE_INLINE void add_chain(const PooledTile& tile, const Wide (&sums)[Kernels][S]) {
#pragma GCC unroll 8
  for (int k = 0; k < Kernels; ++k) {
    float* const to = tile.sums + k * tile.sum_channel;
#pragma GCC unroll 8
    for (int s = 0; s < S; ++s) store(to + s * kWide, wide::load(to + s * kWide) + sums[k][s]);
  }
}

// Adds the products of all windows, including the partial vector at the end of each row. A
// summation chain (framework/simd/sum_chain.h) has at most kSumChain vectors. It consists of whole
// rows, except that a row longer than a chain is split.
template <int Kernels, int S, bool Split>
void pooled_tile(const PooledTile& tile) {
  Index j = 0;
  do {
    const Index count = smaller(kSumChain, tile.columns - j);
    const bool rest = Split && tile.rest > 0 && j + count == tile.columns;
    const Index most = kSumChain / larger(1, count);
    for (Index row = 0; row < tile.rows; row += most) {
      Wide sums[Kernels][S];
      start_from_zero(sums);
      const Index end = smaller(tile.rows, row + most);
      for (Index i = row; i < end; ++i) {
        const float* x = tile.x + 2 * i * tile.x_row + j * (Split ? kWide : 2 * kWide);
        Index at = i * tile.dy_row + j * kWide;
        for (Index left = count; left > 0; --left, x += Split ? kWide : 2 * kWide, at += kWide) {
          add_windows<Kernels, S, Split, false>(tile, x, at, sums);
        }
        if constexpr (Split) {
          if (rest) add_windows<Kernels, S, Split, true>(tile, x, at, sums);
        }
      }
      add_chain(tile, sums);
    }
    j += count;
  } while (j < tile.columns);
}

using PooledFunction = void (*)(const PooledTile&);

constexpr Index most_kernels(Index s) { return s == 3 ? 4 : s == 5 ? 2 : 1; }

template <bool Split>
PooledFunction pooled_of(Index kernels, Index s) {
  constexpr PooledFunction kThree[4] = {pooled_tile<1, 3, Split>, pooled_tile<2, 3, Split>,
                                        pooled_tile<3, 3, Split>, pooled_tile<4, 3, Split>};
  if (s == 3) return kThree[kernels - 1];
  if (s == 5) return kernels == 2 ? pooled_tile<2, 5, Split> : pooled_tile<1, 5, Split>;
  return pooled_tile<1, 7, Split>;
}

bool takes_pooled_weight(const LanesConv& z) {
  return z.stride_h == 1 && z.stride_w == 1 && (z.s == 3 || z.s == 5 || z.s == 7);
}

// Copies x [C,H,W,L] to [C,padded_h,2,split_floats]: the even columns of each padded row, then the
// odd columns, each followed by zeros. Windows that are neighbours then read pixels that are
// neighbours, so one vector holds them.
template <Index Lanes>
void split_columns(const LanesConv& z, const float* x, float* to) {
  clear(to, z.c * z.padded_h * 2 * z.split_floats);
  const Index most = z.split_floats / Lanes;
  for (Index c = 0; c < z.c; ++c) {
    for (Index i = 0; i < z.padded_h; ++i, to += 2 * z.split_floats) {
      const Index h = i - z.pad_top;
      if (h < 0 || h >= z.h) continue;
      const float* const from = x + (c * z.h + h) * z.w * Lanes;
      for (Index w = 0; w < z.w; ++w) {
        const Index at = w + z.pad_left;
        if (at / 2 >= most) break;
        __builtin_memcpy(to + at % 2 * z.split_floats + at / 2 * Lanes, from + w * Lanes,
                         Lanes * sizeof(float));
      }
    }
  }
}

void pooled_weight(const LanesConv& z, const float* x, const float* dy, const std::uint8_t* winners,
                   float* sums, float* scratch) {
  const Blocks kernels(z.k, most_kernels(z.s));
  PooledTile tile;
  tile.split = z.split_floats;
  tile.lanes = z.lanes;
  Index rows = z.padded_h;
  const bool split = z.lanes < kWide;
  if (split) {
    z.lanes == 4 ? split_columns<4>(z, x, scratch) : split_columns<8>(z, x, scratch);
    x = scratch;
    tile.x_row = 2 * z.split_floats;
  } else {
    tile.x_row = z.w * kWide;
    if (z.padded) {
      pad_planes(z, x, scratch);
      x = scratch;
      tile.x_row = z.padded_w * kWide;
    } else {
      rows = z.h;
    }
  }
  tile.dy_row = z.y_q * z.lanes;
  tile.dy_channel = z.y_p * tile.dy_row;
  tile.columns = tile.dy_row / kWide;
  tile.rest = static_cast<int>(tile.dy_row % kWide);
  tile.sum_channel = z.c * z.r * z.s * kWide;
  // n rows of windows read 2 n + R - 1 rows of x.
  const Index fit = kRowBytes / (tile.x_row * static_cast<Index>(sizeof(float)));
  const Blocks strips(z.y_p, larger(1, (fit - z.r + 1) / 2));
  for (Index strip = 0; strip < strips.blocks; ++strip) {
    const Index i = strips.begin(strip);
    tile.rows = strips.size(strip);
    for (Index c = 0; c < z.c; ++c) {
      for (Index block = 0; block < kernels.blocks; ++block) {
        const Index k = kernels.begin(block);
        const PooledFunction function = split ? pooled_of<true>(kernels.size(block), z.s)
                                              : pooled_of<false>(kernels.size(block), z.s);
        tile.dy = dy + k * tile.dy_channel + i * tile.dy_row;
        tile.winners = winners + k * tile.dy_channel + i * tile.dy_row;
        for (Index r = 0; r < z.r; ++r) {
          tile.x = x + (c * rows + 2 * i + r) * tile.x_row;
          tile.sums = sums + ((k * z.c + c) * z.r + r) * z.s * kWide;
          function(tile);
        }
      }
    }
  }
  for (Index k = 0; k < z.k; ++k) {
    float* const to = sums + (z.k * z.c * z.r * z.s + k) * kWide;
    Wide all = wide::load(to);
    const Index end = (k + 1) * tile.dy_channel;
    Index at = k * tile.dy_channel;
    for (; at + kWide <= end; at += kWide) all = all + load_picks(dy + at, winners + at).g;
    if (at < end) all = all + load_picks(dy + at, winners + at, static_cast<int>(end - at)).g;
    store(to, all);
  }
}

// ---- dx ----------------------------------------------------------------------------------------

struct PooledGradientTile {
  const float* dy;  // window (0, first column)
  const std::uint8_t* winners;
  Index dy_channel, dy_row;
  Index kernels, first, end;  // rows of windows that reach this row of dx
  const float* w;             // row r = 0 of the kernel of this channel
  Index w_channel, w_row;
  Index r, h;             // rows of the kernel; row of the padded dx
  float* dx;              // column 0 of its row
  Index column, columns;  // the column of tap 0 of the first window; columns of dx
};

// Adds the products of `kernels` kernels, from `kernel` on, to dx.
template <int Windows, int S>
CONVSCOPE_INLINE void pooled_gradient_chain(const PooledGradientTile& tile, Index kernel,
                                            Index kernels) {
  constexpr int kCount = 2 * Windows + S - 1;
  Wide sums[kCount];
#pragma GCC unroll 16
  for (int t = 0; t < kCount; ++t) sums[t] = no_wide();
  for (Index k = kernel; k < kernel + kernels; ++k) {
    for (Index i = tile.first; i < tile.end; ++i) {
      // If the maximum is in the window's first row, its product has kernel row r; if it is in the
      // second row, kernel row r - 1. At the edges of the kernel only one of the two rows exists.
      const Index r = tile.h - 2 * i;
      const Index at = k * tile.dy_channel + i * tile.dy_row;
      const bool both = r > 0 && r < tile.r;
      const float* const w = tile.w + k * tile.w_channel + (r > 0 ? r - 1 : 0) * tile.w_row;
      Wide second[S];
#pragma GCC unroll 8
      for (int s = 0; s < S; ++s) second[s] = wide::broadcast(w[s]);
      if (both) {
        Wide first[S];
#pragma GCC unroll 8
        for (int s = 0; s < S; ++s) first[s] = wide::broadcast(w[tile.w_row + s]);
#pragma GCC unroll 8
        for (int j = 0; j < Windows; ++j) {
          const Picks picks = load_picks(tile.dy + at + j * kWide, tile.winners + at + j * kWide);
          Wide left = no_wide();
#pragma GCC unroll 8
          for (int s = 0; s < S; ++s) {
            const Wide right = choose(picks.row, first[s], second[s]);
            sums[2 * j + s] = fma(picks.g, choose(picks.column, right, left), sums[2 * j + s]);
            left = right;
          }
          sums[2 * j + S] = fma(picks.g, keep(picks.column, left), sums[2 * j + S]);
        }
      } else {
        const Mask wanted = r > 0 ? all_lanes() : Mask{};
#pragma GCC unroll 8
        for (int j = 0; j < Windows; ++j) {
          const Picks picks = load_picks(tile.dy + at + j * kWide, tile.winners + at + j * kWide);
          const Wide g = keep(equal(picks.row, wanted), picks.g);
          Wide left = no_wide();
#pragma GCC unroll 8
          for (int s = 0; s < S; ++s) {
            sums[2 * j + s] = fma(g, choose(picks.column, second[s], left), sums[2 * j + s]);
            left = second[s];
          }
          sums[2 * j + S] = fma(g, keep(picks.column, left), sums[2 * j + S]);
        }
      }
    }
  }
#pragma GCC unroll 16
  for (int t = 0; t < kCount; ++t) {
    const Index at = tile.column + t;
    if (at < 0 || at >= tile.columns) continue;
    float* const to = tile.dx + at * kWide;
    store(to, wide::load(to) + sums[t]);
  }
}

// In each row of windows, at most (S + 1) / 2 windows add a product to a pixel of dx for one
// kernel. The chain length counts only these products, because products that are 0 cause no
// rounding.
template <int Windows, int S>
void pooled_gradient_tile(const PooledGradientTile& tile) {
  const Index most = larger(1, kSumChain / larger(1, (tile.end - tile.first) * ((S + 1) / 2)));
  for (Index k = 0; k < tile.kernels; k += most) {
    pooled_gradient_chain<Windows, S>(tile, k, smaller(most, tile.kernels - k));
  }
}

using PooledGradientFunction = void (*)(const PooledGradientTile&);

constexpr Index most_windows(Index s) { return s == 3 ? 6 : s == 5 ? 5 : 3; }

PooledGradientFunction pooled_gradient_of(Index windows, Index s) {
  constexpr PooledGradientFunction kThree[6] = {
      pooled_gradient_tile<1, 3>, pooled_gradient_tile<2, 3>, pooled_gradient_tile<3, 3>,
      pooled_gradient_tile<4, 3>, pooled_gradient_tile<5, 3>, pooled_gradient_tile<6, 3>};
  constexpr PooledGradientFunction kFive[5] = {
      pooled_gradient_tile<1, 5>, pooled_gradient_tile<2, 5>, pooled_gradient_tile<3, 5>,
      pooled_gradient_tile<4, 5>, pooled_gradient_tile<5, 5>};
  constexpr PooledGradientFunction kSeven[3] = {
      pooled_gradient_tile<1, 7>, pooled_gradient_tile<2, 7>, pooled_gradient_tile<3, 7>};
  return s == 3 ? kThree[windows - 1] : s == 5 ? kFive[windows - 1] : kSeven[windows - 1];
}

bool takes_pooled_data(const LanesConv& z) { return z.lanes == kWide && takes_pooled_weight(z); }

void pooled_data(const LanesConv& z, const float* dy, const std::uint8_t* winners,
                 const float* packed, float* dx) {
  const Blocks windows(z.y_q, most_windows(z.s));
  const Blocks channels(z.c, kGradientChannels);
  PooledGradientTile tile;
  tile.dy_row = z.y_q * kWide;
  tile.dy_channel = z.y_p * tile.dy_row;
  tile.kernels = z.k;
  tile.r = z.r;
  tile.columns = z.w;
  for (Index h = 0; h < z.h; ++h) {
    // r = h + pad_top - 2 i is in [0, R].
    tile.h = h + z.pad_top;
    tile.first = larger(0, (tile.h - z.r + 1) / 2);
    tile.end = smaller(z.y_p, tile.h / 2 + 1);
    for (Index block = 0; block < channels.blocks; ++block) {
      const Index size = channels.size(block);
      tile.w_row = size * z.s;
      tile.w_channel = z.r * tile.w_row;
      for (Index i = 0; i < size; ++i) {
        const Index c = channels.begin(block) + i;
        tile.w = packed + channels.begin(block) * z.k * z.r * z.s + i * z.s;
        tile.dx = dx + (c * z.h + h) * z.w * kWide;
        clear(tile.dx, z.w * kWide);
        for (Index b = 0; b < windows.blocks; ++b) {
          const Index j = windows.begin(b);
          tile.dy = dy + j * kWide;
          tile.winners = winners + j * kWide;
          tile.column = 2 * j - z.pad_left;
          pooled_gradient_of(windows.size(b), z.s)(tile);
        }
      }
    }
  }
}

#else

constexpr bool takes_pooled_data(const LanesConv&) { return false; }
void pooled_data(const LanesConv&, const float*, const std::uint8_t*, const float*, float*) {}
constexpr bool takes_pooled_weight(const LanesConv&) { return false; }
void pooled_weight(const LanesConv&, const float*, const float*, const std::uint8_t*, float*,
                   float*) {}

#endif

}  // namespace

void backward(const LanesConv& z, const float* x, const float* y, const std::uint8_t* winners,
              const float* dy, const float* packed_backward, float* dx, float* sums,
              float* scratch) {
  const bool pooled_sums = sums != nullptr && z.pool2x2 && takes_pooled_weight(z);
  const bool pooled_dx = dx != nullptr && z.pool2x2 && takes_pooled_data(z);
  const float* dz = dy;
  if ((dx != nullptr && !pooled_dx) || (sums != nullptr && !pooled_sums)) {
    const bool same = !z.pool2x2 && !z.relu;
    output_gradient(z, dy, y, winners, same ? nullptr : scratch, pooled_sums ? nullptr : sums);
    if (!same) dz = scratch;
  }
  float* const rest = scratch + z.gradient_floats;
  if (pooled_sums) {
    pooled_weight(z, x, dy, winners, sums, rest);
  } else if (sums != nullptr) {
    backward_weight(z, x, dz, sums, rest);
  }
  if (pooled_dx) {
    pooled_data(z, dy, winners, packed_backward, dx);
  } else if (dx != nullptr) {
    backward_data(z, dz, packed_backward, dx, rest);
  }
}

}  // namespace convscope::CONVSCOPE_ISA
