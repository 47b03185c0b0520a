// SPDX-License-Identifier: Apache-2.0
// batch_lanes_pooled_simd.cpp: the gradients of a layer that ends in a 2x2 max-pool, straight from
// the pooled gradient: three of four products of the separate path are with zeros, and are left out.
//
// Formula    a window (i,j) passes its gradient g to one pixel (2i+a, 2j+b) of four, a and b being
//            the bits of its winner byte, other ones in each lane. So, for stride 1,
//              dw[k,c,r,s] = sum over i, j of g[k,i,j] x[c, 2i+a+r, 2j+b+s]
// Plan       the pixel is picked by blends: rows by a, then columns by b, which neighbouring taps
//            share. R S taps of one window: R (S + 1) + R S blends + R S FMAs instead of 4 R S FMAs;
//            Zen 4 does two blends a cycle and one FMA, so 5x5 takes 46 cycles instead of 100.
//            AVX-512 with 16 lanes only (masks in registers of their own); everything else expands
//            the gradient to dz first.
// Choices    kernels of a tile: 2 x 5 sums + 2 x 6 pixels + 4 others of 32 registers
//            kRowBytes 24 KiB of x in the 32 KiB of L1
#include "layers/conv2d/batch_lanes_parts.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

#if defined(CONVSCOPE_ISA_IS_AVX512)

constexpr Index kRowBytes = 24 * 1024;

// One vector of winner bytes.
struct Picks {
  WideMask row, column;  // a and b
  Wide g;                // 0 where ReLU cut it
};
CONVSCOPE_INLINE Picks load_picks(const float* dy, const std::uint8_t* winners) {
  const Winners winner = load_winners(winners);
  return {_mm_test_epi8_mask(winner.v, _mm_set1_epi8(2)),
          _mm_test_epi8_mask(winner.v, _mm_set1_epi8(1)),
          {_mm512_maskz_loadu_ps(_mm_testn_epi8_mask(winner.v, _mm_set1_epi8(4)), dy)}};
}

struct PooledTile {
  const float* x;  // the pixel that window (0,0) and tap s = 0 begin at
  Index x_row;
  const float* dy;
  const std::uint8_t* winners;
  Index dy_channel, dy_row;
  Index rows, columns;  // of windows
  float* sums;
  Index sum_channel;  // from one kernel to the next
};

template <int Kernels, int S>
void pooled_tile(const PooledTile& tile) {
  Wide sums[Kernels][S];
#pragma GCC unroll 8
  for (int k = 0; k < Kernels; ++k) {
#pragma GCC unroll 8
    for (int s = 0; s < S; ++s)
      sums[k][s] = load_wide(tile.sums + k * tile.sum_channel + s * kWide);
  }
  for (Index i = 0; i < tile.rows; ++i) {
    const float* x = tile.x + 2 * i * tile.x_row;
    Index at = i * tile.dy_row;
    for (Index j = tile.columns; j > 0; --j, x += 2 * kWide, at += kWide) {
      Wide above[S + 1];
      Wide below[S + 1];
#pragma GCC unroll 8
      for (int t = 0; t <= S; ++t) {
        above[t] = load_wide(x + t * kWide);
        below[t] = load_wide(x + tile.x_row + t * kWide);
      }
#pragma GCC unroll 8
      for (int k = 0; k < Kernels; ++k) {
        const Index from = k * tile.dy_channel + at;
        const Picks picks = load_picks(tile.dy + from, tile.winners + from);
        Wide left = choose(picks.row, above[0], below[0]);
#pragma GCC unroll 8
        for (int s = 0; s < S; ++s) {
          const Wide right = choose(picks.row, above[s + 1], below[s + 1]);
          sums[k][s] = fma(picks.g, choose(picks.column, left, right), sums[k][s]);
          left = right;
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int k = 0; k < Kernels; ++k) {
#pragma GCC unroll 8
    for (int s = 0; s < S; ++s)
      store_wide(tile.sums + k * tile.sum_channel + s * kWide, sums[k][s]);
  }
}

using PooledFunction = void (*)(const PooledTile&);

constexpr Index most_kernels(Index s) { return s == 3 ? 4 : s == 5 ? 2 : 1; }

PooledFunction pooled_of(Index kernels, Index s) {
  constexpr PooledFunction kThree[4] = {pooled_tile<1, 3>, pooled_tile<2, 3>, pooled_tile<3, 3>,
                                        pooled_tile<4, 3>};
  if (s == 3) return kThree[kernels - 1];
  if (s == 5) return kernels == 2 ? pooled_tile<2, 5> : pooled_tile<1, 5>;
  return pooled_tile<1, 7>;
}

bool takes_pooled_weight(const LanesConv& z) {
  return z.lanes == kWide && z.stride_h == 1 && z.stride_w == 1 &&
         (z.s == 3 || z.s == 5 || z.s == 7);
}

void pooled_weight(const LanesConv& z, const float* x, const float* dy, const std::uint8_t* winners,
                   float* sums, float* scratch) {
  Index rows = z.h;
  Index columns = z.w;
  if (z.padded) {
    pad_planes(z, x, scratch);
    x = scratch;
    rows = z.padded_h;
    columns = z.padded_w;
  }
  const Blocks kernels(z.k, most_kernels(z.s));
  PooledTile tile;
  tile.x_row = columns * kWide;
  tile.dy_row = z.y_q * kWide;
  tile.dy_channel = z.y_p * tile.dy_row;
  tile.columns = z.y_q;
  tile.sum_channel = z.c * z.r * z.s * kWide;
  // 2 n + R - 1 rows of x for n rows of windows.
  const Index fit = kRowBytes / (tile.x_row * static_cast<Index>(sizeof(float)));
  const Blocks strips(z.y_p, larger(1, (fit - z.r + 1) / 2));
  for (Index strip = 0; strip < strips.blocks; ++strip) {
    const Index i = strips.begin(strip);
    tile.rows = strips.size(strip);
    for (Index c = 0; c < z.c; ++c) {
      for (Index block = 0; block < kernels.blocks; ++block) {
        const Index k = kernels.begin(block);
        const PooledFunction function = pooled_of(kernels.size(block), z.s);
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
    Wide all = load_wide(to);
    for (Index at = k * tile.dy_channel; at < (k + 1) * tile.dy_channel; at += kWide) {
      all = all + load_picks(dy + at, winners + at).g;
    }
    store_wide(to, all);
  }
}

#else

constexpr bool takes_pooled_weight(const LanesConv&) { return false; }
void pooled_weight(const LanesConv&, const float*, const float*, const std::uint8_t*, float*,
                   float*) {}

#endif

}  // namespace

void backward(const LanesConv& z, const float* x, const float* y, const std::uint8_t* winners,
              const float* dy, const float* packed_backward, float* dx, float* sums,
              float* scratch) {
  const bool pooled_sums = sums != nullptr && z.pool2x2 && takes_pooled_weight(z);
  const float* dz = dy;
  if (dx != nullptr || !pooled_sums) {
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
  if (dx != nullptr) backward_data(z, dz, packed_backward, dx, rest);
}

}  // namespace convscope::CONVSCOPE_ISA
