// SPDX-License-Identifier: Apache-2.0
// batch_lanes_gradient_simd.cpp: backward_data with samples in the vector lanes. batch_lanes.h
// describes each function.
//
// Method     With stride 1 and one vector of samples for each pixel, a tile of dx stays in
//            registers over all (k, r). Each dz that reaches the tile is loaded once and multiplied
//            by the weights of its S taps. The unrolled loops contain only the pairs (dz, tap)
//            inside the tile, so no product with padding is computed. Any other stride, kernel or
//            vector takes two steps: dz is copied with zeros between its pixels, then convolved
//            with the kernel rotated by 180 degrees. The convolution skips the zeros at the edges.
// Choices    kColumns 8: 16 accumulators (2 channels x 8 columns of dx), 2 x 7 weights and 1 dz
//            fill 31 registers
// Read next  batch_lanes_simd.cpp, the forward pass; batch_lanes_pooled_simd.cpp
#include "layers/conv2d/batch_lanes/cpu/batch_lanes_parts.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

constexpr int kColumns = 8;
constexpr int kPairColumns = 4;  // 2 vectors x 4 columns + 5 weights + 2 of 16 registers

// A tile of dx [Channels, Columns] of one row.
struct GradientTile {
  const float* dz;           // row p of tap r = 0, column 0
  const float* w;            // [kernels, r, Channels, S]
  Index kernels, r;          // rows of taps inside the image
  Index dz_channel, dz_row;  // dz_row: back to the row of the next r
  Index w_channel;
  Index pixel;       // floats from one column to the next
  Index q;           // column of dz that tap s = 0 reads for column 0 of dx
  Index first, end;  // columns of dz that exist, relative to q
  float* dx;
  Index dx_channel;
};

// Adds the products of `kernels` kernels to dx as one summation chain (framework/simd/sum_chain.h).
// If `Vectors` is 2, both vectors of a pixel are computed together (see kPairs).
template <int Channels, int Vectors, int Columns, int S>
CONVSCOPE_INLINE void gradient_chain(const GradientTile& tile, Index first, Index kernels) {
  Wide sums[Channels][Vectors][Columns];
#pragma GCC unroll 2
  for (int c = 0; c < Channels; ++c) {
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) {
#pragma GCC unroll 8
      for (int j = 0; j < Columns; ++j) sums[c][v][j] = no_wide();
    }
  }
  const float* dz_channel = tile.dz + first * tile.dz_channel;
  const float* w_channel = tile.w + first * tile.w_channel;
  for (Index k = kernels; k > 0; --k) {
    const float* dz_row = dz_channel;
    const float* w = w_channel;
    for (Index r = tile.r; r > 0; --r) {
      Wide weights[Channels][S];
#pragma GCC unroll 2
      for (int c = 0; c < Channels; ++c) {
#pragma GCC unroll 8
        for (int s = 0; s < S; ++s) {
          weights[c][s] = wide::broadcast(w[c * S + s]);
          keep_in_register(weights[c][s]);
        }
      }
#pragma GCC unroll 16
      for (int j = 1 - S; j < Columns; ++j) {
        if (j < tile.first || j >= tile.end) continue;
#pragma GCC unroll 2
        for (int v = 0; v < Vectors; ++v) {
          Wide value = wide::load(dz_row + (tile.q + j) * tile.pixel + v * kWide);
          keep_in_register(value);
#pragma GCC unroll 8
          for (int s = 0; s < S; ++s) {
            if (j + s < 0 || j + s >= Columns) continue;
#pragma GCC unroll 2
            for (int c = 0; c < Channels; ++c) {
              sums[c][v][j + s] = fma(value, weights[c][s], sums[c][v][j + s]);
            }
          }
        }
      }
      dz_row -= tile.dz_row;
      w += Channels * S;
    }
    dz_channel += tile.dz_channel;
    w_channel += tile.w_channel;
  }
#pragma GCC unroll 2
  for (int c = 0; c < Channels; ++c) {
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) {
#pragma GCC unroll 8
      for (int j = 0; j < Columns; ++j) {
        float* const to = tile.dx + c * tile.dx_channel + j * tile.pixel + v * kWide;
        if (first > 0) sums[c][v][j] = wide::load(to) + sums[c][v][j];
        store(to, sums[c][v][j]);
      }
    }
  }
}

// Sums all kernels in chains of at most kSumChain products (framework/simd/sum_chain.h).
template <int Channels, int Vectors, int Columns, int S>
void gradient_tile(const GradientTile& tile) {
  const Index most = larger(1, kSumChain / larger(1, tile.r * S));
  Index k = 0;
  do {
    gradient_chain<Channels, Vectors, Columns, S>(tile, k, smaller(most, tile.kernels - k));
    k += most;
  } while (k < tile.kernels);
}

using GradientFunction = void (*)(const GradientTile&);

template <int Channels, int S>
GradientFunction gradient_of(Index columns) {
  constexpr GradientFunction kTable[kColumns] = {
      gradient_tile<Channels, 1, 1, S>, gradient_tile<Channels, 1, 2, S>,
      gradient_tile<Channels, 1, 3, S>, gradient_tile<Channels, 1, 4, S>,
      gradient_tile<Channels, 1, 5, S>, gradient_tile<Channels, 1, 6, S>,
      gradient_tile<Channels, 1, 7, S>, gradient_tile<Channels, 1, 8, S>};
  return kTable[columns - 1];
}
template <int S>
GradientFunction gradient_of(Index channels, Index vectors, Index columns) {
  if constexpr (kGradientChannels >= 2) {
    if (channels == 2) return gradient_of<2, S>(columns);
  }
  if constexpr (kPairs) {
    constexpr GradientFunction kTable[kPairColumns] = {
        gradient_tile<1, 2, 1, S>, gradient_tile<1, 2, 2, S>, gradient_tile<1, 2, 3, S>,
        gradient_tile<1, 2, 4, S>};
    if (vectors == 2) return kTable[columns - 1];
  }
  return gradient_of<1, S>(columns);
}
GradientFunction gradient_of(Index channels, Index vectors, Index columns, Index s) {
  return s == 1   ? gradient_of<1>(channels, vectors, columns)
         : s == 3 ? gradient_of<3>(channels, vectors, columns)
         : s == 5 ? gradient_of<5>(channels, vectors, columns)
                  : gradient_of<7>(channels, vectors, columns);
}

bool by_gradient_tiles(const LanesConv& z) {
  return z.lanes >= kWide && z.stride_h == 1 && z.stride_w == 1 &&
         (z.s == 1 || z.s == 3 || z.s == 5 || z.s == 7);
}

void run_gradient_tiles(const LanesConv& z, const float* dz, const float* packed, float* dx) {
  const Blocks channels(z.c, kGradientChannels);
  const Index lanes = z.lanes;
  const Index vectors = kPairs && lanes >= 2 * kWide ? 2 : 1;
  const Blocks columns(z.w, vectors == 2 ? kPairColumns : kColumns);
  GradientTile tile;
  tile.kernels = z.k;
  tile.dz_row = z.conv_q * lanes;
  tile.dz_channel = z.conv_p * tile.dz_row;
  tile.pixel = lanes;
  tile.dx_channel = z.h * z.w * lanes;
  for (Index h = 0; h < z.h; ++h) {
    // p = h + pad_top - r is in [0, conv_p).
    const Index r_first = larger(0, h + z.pad_top - z.conv_p + 1);
    const Index r_end = smaller(z.r, h + z.pad_top + 1);
    tile.r = larger(0, r_end - r_first);
    const Index p = tile.r == 0 ? 0 : h + z.pad_top - r_first;
    for (Index j = 0; j < columns.blocks; ++j) {
      const Index w = columns.begin(j);
      tile.q = w + z.pad_left;
      tile.first = -tile.q;
      tile.end = z.conv_q - tile.q;
      for (Index block = 0; block < channels.blocks; ++block) {
        const Index c = channels.begin(block);
        const Index size = channels.size(block);
        tile.w = packed + c * z.k * z.r * z.s + r_first * size * z.s;
        tile.w_channel = z.r * size * z.s;
        const GradientFunction function = gradient_of(size, vectors, columns.size(j), z.s);
        for (Index part = 0; part < lanes; part += vectors * kWide) {
          tile.dz = dz + p * tile.dz_row + part;
          tile.dx = dx + c * tile.dx_channel + (h * z.w + w) * lanes + part;
          function(tile);
        }
      }
    }
  }
}

}  // namespace

void pack_weights_backward(const LanesConv& z, const float* w, float* packed) {
  const Index taps = z.r * z.s;
  if (!by_gradient_tiles(z)) {
    pack_blocks(w, z.c, taps, z.k, z.c * taps, taps, true, packed);
    return;
  }
  const Blocks blocks(z.c, kGradientChannels);
  for (Index block = 0; block < blocks.blocks; ++block) {
    for (Index k = 0; k < z.k; ++k) {
      for (Index r = 0; r < z.r; ++r) {
        for (Index c = blocks.begin(block); c < blocks.begin(block + 1); ++c) {
          for (Index s = 0; s < z.s; ++s) *packed++ = w[((k * z.c + c) * z.r + r) * z.s + s];
        }
      }
    }
  }
}

void backward_data(const LanesConv& z, const float* dz, const float* packed, float* dx,
                   float* scratch) {
  if (by_gradient_tiles(z)) {
    run_gradient_tiles(z, dz, packed, dx);
    return;
  }
  // Row p of dz is copied to row p * stride_h + R - 1 - pad_top. Row h of dx then reads the R rows
  // of the copy from row h on.
  ImagePass pass{};
  pass.channels = z.k;
  pass.rows = z.h + z.r - 1;
  pass.columns = z.w + z.s - 1;
  const Index top = z.r - 1 - z.pad_top;
  const Index left = z.s - 1 - z.pad_left;
  const Index row = pass.columns * z.lanes;
  clear(scratch, z.k * pass.rows * row);
  for (Index k = 0; k < z.k; ++k) {
    for (Index p = 0; p < z.conv_p; ++p) {
      const Index to = p * z.stride_h + top;
      if (to < 0 || to >= pass.rows) continue;
      for (Index q = 0; q < z.conv_q; ++q) {
        const Index at = q * z.stride_w + left;
        if (at < 0 || at >= pass.columns) continue;
        const float* const from = dz + ((k * z.conv_p + p) * z.conv_q + q) * z.lanes;
        float* const pixel = scratch + (k * pass.rows + to) * row + at * z.lanes;
        for (Index i = 0; i < z.lanes; i += 4) {
          for (Index lane = i; lane < i + 4; ++lane) pixel[lane] = from[lane];
        }
      }
    }
  }
  pass.zero_top = smaller(larger(0, top), pass.rows);
  pass.zero_left = smaller(larger(0, left), pass.columns);
  pass.zero_bottom = larger(0, pass.rows - 1 - ((z.conv_p - 1) * z.stride_h + top));
  pass.zero_right = larger(0, pass.columns - 1 - ((z.conv_q - 1) * z.stride_w + left));
  pass.x = scratch;
  pass.r = z.r;
  pass.s = z.s;
  pass.row_stride = 1;
  pass.column_stride = 1;
  pass.lanes = z.lanes;
  pass.kernels = z.c;
  pass.weights = packed;
  pass.p = z.h;
  pass.q = z.w;
  pass.y = dx;
  run_pass(pass, false);
}

}  // namespace convscope::CONVSCOPE_ISA
