// SPDX-License-Identifier: Apache-2.0
// batch_lanes_simd.cpp: convolution with samples in the vector lanes: sums of forward and
// backward_data, 2x2 max-pool and its gradient. batch_lanes.h says what each function does.
//
// Plan       forward keeps a tile of kernels x pixels in registers over all (c, r, s). A pooled tile
//            is 2 rows x 2 columns (of pixels, or of vectors that hold Ratio pixels), so that its
//            maximum is taken before anything is stored.
//            backward_data with stride 1 and one sample vector for each pixel: a tile of dx stays in
//            registers over all (k, r); each dz that reaches it is loaded once and multiplied into
//            its S neighbours. Which pairs meet is known when the loops are unrolled, so no product
//            with padding is computed. Any other stride, kernel or vector: dz is spread over zeros
//            and the turned kernel goes over it like a forward pass, zeros at the edges left out.
// Choices    kKernels 6 of 32 registers: 6 x 4 sums + 6 weights + 1 x; 3 of 16: 3 x 4 + 3 + 1
//            kColumns 8: 2 channels x 8 columns of dx + 2 x 7 weights + 1 dz = 31 registers
// GCC 12 keeps an array that an ordinary loop indexes on the stack: every loop over sums has an
// unroll pragma.
#include "layers/conv2d/batch_lanes_parts.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

#if defined(CONVSCOPE_ISA_IS_AVX512)
constexpr int kKernels = 6;
#elif defined(CONVSCOPE_ISA_IS_AVX2)
constexpr int kKernels = 3;
#else
constexpr int kKernels = 2;
#endif
constexpr int kColumns = 8;
constexpr int kPairColumns = 4;  // 2 vectors x 4 columns + 5 weights + 2 of 16 registers

// ---- sums over (c, r, s) -----------------------------------------------------------------------

// The image [channels, rows, columns, L] that sums read, zeros around it where it is a copy, and
// where they go.
struct Pass {
  Index channels, rows, columns;                       // of the image
  Index zero_top, zero_bottom, zero_left, zero_right;  // of it, known to be zeros
  Index r, s, row_stride, column_stride, lanes;
  const float* x;
  Index kernels;
  const float* weights;  // blocks of kernels, each [channels, r, s, size]
  const float* bias;
  bool relu;
  Index p, q;  // of the sums
  float* y;
  std::uint8_t* winners;
};

// One tile of sums, borders clipped.
struct Tile {
  const float* x;
  const float* w;
  Index channels, r, s;
  Index x_channel, x_row, x_tap;
  Index w_channel, w_row;
  Index row_step, column_step;  // from one sum to the next, in x
};

template <int Kernels, int Rows, int Columns>
CONVSCOPE_INLINE void add_products(const Tile& tile, Wide (&sums)[Kernels][Rows * Columns]) {
  const float* x_channel = tile.x;
  const float* w_channel = tile.w;
  for (Index c = tile.channels; c > 0; --c) {
    const float* x_row = x_channel;
    const float* w_row = w_channel;
    for (Index r = tile.r; r > 0; --r) {
      const float* x = x_row;
      const float* w = w_row;
      for (Index s = tile.s; s > 0; --s) {
        Wide weights[Kernels];
#pragma GCC unroll 8
        for (int k = 0; k < Kernels; ++k) {
          weights[k] = set_wide(w[k]);
          keep_in_register(weights[k]);
        }
#pragma GCC unroll 2
        for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 4
          for (int j = 0; j < Columns; ++j) {
            Wide pixel = load_wide(x + i * tile.row_step + j * tile.column_step);
            keep_in_register(pixel);
#pragma GCC unroll 8
            for (int k = 0; k < Kernels; ++k) {
              sums[k][i * Columns + j] = fma(weights[k], pixel, sums[k][i * Columns + j]);
            }
          }
        }
        x += tile.x_tap;
        w += Kernels;
      }
      x_row += tile.x_row;
      w_row += tile.w_row;
    }
    x_channel += tile.x_channel;
    w_channel += tile.w_channel;
  }
}

// Where the sums of one tile go.
struct Target {
  const float* bias;  // of its first kernel, or null
  bool relu;
  float* y;
  Index y_channel, y_step;  // to the next kernel, the next column
  int count;                // lanes, when not all
  std::uint8_t* winners;
};

template <int Kernels, int Count>
CONVSCOPE_INLINE void start_from_bias(const float* bias, Wide (&sums)[Kernels][Count]) {
#pragma GCC unroll 8
  for (int k = 0; k < Kernels; ++k) {
    const Wide start = bias == nullptr ? no_wide() : set_wide(bias[k]);
#pragma GCC unroll 4
    for (int i = 0; i < Count; ++i) sums[k][i] = start;
  }
}

template <int Kernels, int Columns>
void plain_tile(const Tile& tile, const Target& target) {
  Wide sums[Kernels][Columns];
  start_from_bias(target.bias, sums);
  add_products<Kernels, 1, Columns>(tile, sums);
  if (target.relu) {
#pragma GCC unroll 8
    for (int k = 0; k < Kernels; ++k) {
#pragma GCC unroll 4
      for (int j = 0; j < Columns; ++j) sums[k][j] = rectified(sums[k][j]);
    }
  }
#pragma GCC unroll 8
  for (int k = 0; k < Kernels; ++k) {
#pragma GCC unroll 4
    for (int j = 0; j < Columns; ++j) {
      store_wide(target.y + k * target.y_channel + j * target.y_step, sums[k][j]);
    }
  }
}

// A row shorter than one vector: one kernel at a time.
void short_tile(const Tile& tile, const Target& target, Index kernels) {
  for (Index k = 0; k < kernels; ++k) {
    Wide sum = target.bias == nullptr ? no_wide() : set_wide(target.bias[k]);
    for (Index c = 0; c < tile.channels; ++c) {
      for (Index r = 0; r < tile.r; ++r) {
        for (Index s = 0; s < tile.s; ++s) {
          const float* const x = tile.x + c * tile.x_channel + r * tile.x_row + s * tile.x_tap;
          const float w = tile.w[c * tile.w_channel + r * tile.w_row + s * kernels + k];
          sum = fma(set_wide(w), load_wide(x, target.count), sum);
        }
      }
    }
    if (target.relu) sum = rectified(sum);
    store_wide(target.y + k * target.y_channel, sum, target.count);
  }
}

template <int Kernels, int Ratio>
CONVSCOPE_INLINE void store_pooled(const Wide (&sums)[Kernels][4], const Target& target,
                                   bool ordered) {
#pragma GCC unroll 8
  for (int k = 0; k < Kernels; ++k) {
    store_largest(even_pixels<Ratio>(sums[k][0], sums[k][1]),
                  odd_pixels<Ratio>(sums[k][0], sums[k][1]),
                  even_pixels<Ratio>(sums[k][2], sums[k][3]),
                  odd_pixels<Ratio>(sums[k][2], sums[k][3]), target.relu, ordered,
                  target.y + k * target.y_channel, target.winners + k * target.y_channel);
  }
}

template <int Kernels, int Ratio>
void pooled_tile(const Tile& tile, const Target& target) {
  Wide sums[Kernels][4];  // two rows, two columns
  start_from_bias(target.bias, sums);
  add_products<Kernels, 2, 2>(tile, sums);
  WideMask nan = either_nan(sums[0][0], sums[0][1]);
#pragma GCC unroll 8
  for (int k = 0; k < Kernels; ++k) {
    nan = or_mask(nan,
                  or_mask(either_nan(sums[k][0], sums[k][1]), either_nan(sums[k][2], sums[k][3])));
  }
  if (__builtin_expect(any_lane(nan), 0)) {
    store_pooled<Kernels, Ratio>(sums, target, false);
  } else {
    store_pooled<Kernels, Ratio>(sums, target, true);
  }
}

using TileFunction = void (*)(const Tile&, const Target&);

template <int Kernels>
TileFunction plain_of(int columns) {
  if constexpr (Kernels <= kKernels) {
    constexpr TileFunction kTable[4] = {plain_tile<Kernels, 1>, plain_tile<Kernels, 2>,
                                        plain_tile<Kernels, 3>, plain_tile<Kernels, 4>};
    return kTable[columns - 1];
  }
  return nullptr;
}
TileFunction plain_of(Index kernels, int columns) {
  switch (kernels) {
    case 1:
      return plain_of<1>(columns);
    case 2:
      return plain_of<2>(columns);
    case 3:
      return plain_of<3>(columns);
    case 4:
      return plain_of<4>(columns);
    case 5:
      return plain_of<5>(columns);
    default:
      return plain_of<6>(columns);
  }
}

template <int Ratio>
TileFunction pooled_of(Index kernels) {
  constexpr TileFunction kTable[6] = {
      pooled_tile<1, Ratio>,
      pooled_tile < kKernels < 2 ? 1 : 2,
      Ratio >,
      pooled_tile < kKernels < 3 ? 1 : 3,
      Ratio >,
      pooled_tile < kKernels < 4 ? 1 : 4,
      Ratio >
      , pooled_tile < kKernels < 5 ? 1 : 5, Ratio >, pooled_tile < kKernels < 6 ? 1 : 6, Ratio >,
  };
  return kTable[kernels - 1];
}

// The part of [0, taps) whose reads [at + tap step, at + tap step + span) meet [begin, end).
struct Clip {
  Index first, count;
};
CONVSCOPE_INLINE Clip clip(Index at, Index step, Index span, Index taps, Index begin, Index end) {
  Index first = 0;
  Index last = taps;
  while (first < last && at + first * step + span <= begin) ++first;
  while (first < last && at + (last - 1) * step >= end) --last;
  return {first, last - first};
}

// One pass over an image: rows (pairs of rows when pooled), tiles of a row, blocks of kernels.
void run(const Pass& z, bool pooled) {
  const Index lanes = z.lanes;
  const Index ratio = kWide > lanes ? kWide / lanes : 1;
  const Index parts = lanes > kWide ? lanes / kWide : 1;  // vectors of one pixel
  const Blocks blocks(z.kernels, kKernels);
  const Index x_row = z.columns * lanes;
  // A column of sums: a vector of one pixel, or a vector of `ratio` pixels.
  const Index step_y = ratio > 1 ? kWide : lanes;
  const Index step_x = ratio > 1 ? kWide : lanes * z.column_stride;
  const Index row_floats = z.q * lanes;
  const Index shrink = pooled ? 2 : 1;
  const Index width = pooled ? 2 : 4;  // columns of a tile
  const Index y_row = row_floats / shrink;
  const Index y_channel = y_row * (z.p / shrink);

  Tile tile;
  tile.channels = z.channels;
  tile.x_channel = z.rows * x_row;
  tile.x_row = x_row;
  tile.x_tap = lanes;
  tile.row_step = z.row_stride * x_row;
  tile.column_step = step_x;
  Target target;
  target.relu = z.relu;
  target.y_channel = y_channel;
  target.y_step = step_y;
  for (Index p = 0; p < z.p; p += shrink) {
    const Index row = p * z.row_stride;
    const Clip r =
        clip(row, 1, (shrink - 1) * z.row_stride + 1, z.r, z.zero_top, z.rows - z.zero_bottom);
    tile.r = r.count;
    for (Index done = 0; done < row_floats;) {
      Index count = smaller(width, (row_floats - done) / step_y);
      Index at = done;
      done += count * step_y;
      if (count == 0 || (pooled && count < width)) {  // the rest: overlaps the tile before
        count = pooled ? width : 1;
        at = row_floats - count * step_y;
        done = row_floats;
      }
      const bool too_short = at < 0;  // one row is less than one vector
      if (too_short) at = 0;
      target.count = too_short ? static_cast<int>(row_floats) : kWide;
      const Index x_at = ratio > 1 ? at : at * z.column_stride;
      const Index span = too_short ? row_floats : (count - 1) * step_x + lanes * ratio;
      const Clip s =
          clip(x_at, lanes, span, z.s, z.zero_left * lanes, (z.columns - z.zero_right) * lanes);
      tile.s = s.count;
      for (Index block = 0; block < blocks.blocks; ++block) {
        const Index k = blocks.begin(block);
        const Index size = blocks.size(block);
        tile.w = z.weights + k * z.channels * z.r * z.s + (r.first * z.s + s.first) * size;
        tile.w_row = z.s * size;
        tile.w_channel = z.r * z.s * size;
        target.bias = z.bias == nullptr ? nullptr : z.bias + k;
        for (Index part = 0; part < parts; ++part) {
          tile.x = z.x + (row + r.first) * x_row + x_at + s.first * lanes + part * kWide;
          const Index out = k * y_channel + p / shrink * y_row + at / shrink + part * kWide;
          target.y = z.y + out;
          if (pooled) {
            target.winners = z.winners + out;
            const TileFunction function = ratio == 1   ? pooled_of<1>(size)
                                          : ratio == 2 ? pooled_of<2>(size)
                                                       : pooled_of<4>(size);
            function(tile, target);
          } else if (too_short) {
            short_tile(tile, target, size);
          } else {
            plain_of(size, static_cast<int>(count))(tile, target);
          }
        }
      }
    }
  }
}

// [blocks of `kernels`][channels][r][s][block] of weights at w[kernel k_step + channel c_step + tap],
// the taps turned by 180 degrees or not.
void pack(const float* w, Index kernels, Index k_step, Index channels, Index c_step, Index taps,
          bool turned, float* to) {
  const Blocks blocks(kernels, kKernels);
  for (Index block = 0; block < blocks.blocks; ++block) {
    const float* const from = w + blocks.begin(block) * k_step;
    const Index size = blocks.size(block);
    for (Index c = 0; c < channels; ++c) {
      for (Index tap = 0; tap < taps; ++tap) {
        const Index at = c * c_step + (turned ? taps - 1 - tap : tap);
        for (Index k = 0; k < size; ++k) *to++ = from[k * k_step + at];
      }
    }
  }
}

void pack_weights(const LanesConv& z, const float* w, float* packed) {
  pack(w, z.k, z.c * z.r * z.s, z.c, z.r * z.s, z.r * z.s, false, packed);
}

void forward(const LanesConv& z, const float* x, const float* packed, const float* b, float* y,
             std::uint8_t* winners, float* scratch) {
  Pass pass{};
  pass.channels = z.c;
  pass.rows = z.h;
  pass.columns = z.w;
  pass.x = x;
  if (z.padded) {
    pad_planes(z, x, scratch);
    pass.x = scratch;
    scratch += z.c * z.padded_h * z.padded_w * z.lanes;
    pass.rows = z.padded_h;
    pass.columns = z.padded_w;
    pass.zero_top = smaller(z.pad_top, z.padded_h);
    pass.zero_left = smaller(z.pad_left, z.padded_w);
    pass.zero_bottom = larger(0, z.padded_h - z.pad_top - z.h);
    pass.zero_right = larger(0, z.padded_w - z.pad_left - z.w);
  }
  pass.r = z.r;
  pass.s = z.s;
  pass.row_stride = z.stride_h;
  pass.column_stride = z.stride_w;
  pass.lanes = z.lanes;
  pass.kernels = z.k;
  pass.weights = packed;
  pass.bias = b;
  pass.relu = z.relu;
  pass.p = z.conv_p;
  pass.q = z.conv_q;
  pass.y = y;
  pass.winners = winners;
  const bool two_steps = z.pool2x2 && z.conv_q * z.lanes < 32;
  if (two_steps) {
    pass.y = scratch;
    pass.relu = false;
  }
  run(pass, z.pool2x2 && !two_steps);
  if (two_steps) {
    max_pool2x2(z.k, z.conv_p, z.conv_q, z.lanes, z.relu, scratch, y, winners);
  }
}

// ---- backward_data -----------------------------------------------------------------------------

// A tile of dx [Channels, Columns] of one row.
struct GradientTile {
  const float* dz;           // row p of tap r = 0, column 0
  const float* w;            // [kernels, r, Channels, S]
  Index kernels, r;          // rows of taps that lie inside
  Index dz_channel, dz_row;  // dz_row: back to the row of the next r
  Index w_channel;
  Index pixel;       // floats from one column to the next
  Index q;           // column of dz that tap s = 0 of dx column 0 reads
  Index first, end;  // columns of dz relative to q that exist
  float* dx;
  Index dx_channel;
};

// Vectors of one pixel at once, see kPairs.
template <int Channels, int Vectors, int Columns, int S>
void gradient_tile(const GradientTile& tile) {
  Wide sums[Channels][Vectors][Columns];
#pragma GCC unroll 2
  for (int c = 0; c < Channels; ++c) {
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) {
#pragma GCC unroll 8
      for (int j = 0; j < Columns; ++j) sums[c][v][j] = no_wide();
    }
  }
  const float* dz_channel = tile.dz;
  const float* w_channel = tile.w;
  for (Index k = tile.kernels; k > 0; --k) {
    const float* dz_row = dz_channel;
    const float* w = w_channel;
    for (Index r = tile.r; r > 0; --r) {
      Wide weights[Channels][S];
#pragma GCC unroll 2
      for (int c = 0; c < Channels; ++c) {
#pragma GCC unroll 8
        for (int s = 0; s < S; ++s) {
          weights[c][s] = set_wide(w[c * S + s]);
          keep_in_register(weights[c][s]);
        }
      }
#pragma GCC unroll 16
      for (int j = 1 - S; j < Columns; ++j) {
        if (j < tile.first || j >= tile.end) continue;
#pragma GCC unroll 2
        for (int v = 0; v < Vectors; ++v) {
          Wide value = load_wide(dz_row + (tile.q + j) * tile.pixel + v * kWide);
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
        store_wide(tile.dx + c * tile.dx_channel + j * tile.pixel + v * kWide, sums[c][v][j]);
      }
    }
  }
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

void pack_weights_backward(const LanesConv& z, const float* w, float* packed) {
  const Index taps = z.r * z.s;
  if (!by_gradient_tiles(z)) {
    pack(w, z.c, taps, z.k, z.c * taps, taps, true, packed);
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
    // p = h + pad_top - r lies in [0, conv_p).
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

void backward_data(const LanesConv& z, const float* dz, const float* packed, float* dx,
                   float* scratch) {
  if (by_gradient_tiles(z)) {
    run_gradient_tiles(z, dz, packed, dx);
    return;
  }
  // Row p of dz goes to row p stride_h + R - 1 - pad_top, and the turned kernel begins at row h.
  Pass pass{};
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
  run(pass, false);
}

}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(lanes_kernels,
                       (LanesKernels{.pack_weights = CONVSCOPE_ISA::pack_weights,
                                     .pack_weights_backward = CONVSCOPE_ISA::pack_weights_backward,
                                     .forward = CONVSCOPE_ISA::forward,
                                     .output_gradient = CONVSCOPE_ISA::output_gradient,
                                     .backward_data = CONVSCOPE_ISA::backward_data,
                                     .backward_weight = CONVSCOPE_ISA::backward_weight,
                                     .reduce = CONVSCOPE_ISA::reduce,
                                     .backward = CONVSCOPE_ISA::backward,
                                     .max_pool2x2 = CONVSCOPE_ISA::max_pool2x2,
                                     .max_pool2x2_backward = CONVSCOPE_ISA::max_pool2x2_backward,
                                     .relu = CONVSCOPE_ISA::relu,
                                     .relu_backward = CONVSCOPE_ISA::relu_backward}))
