// SPDX-License-Identifier: Apache-2.0
// batch_lanes_simd.cpp: convolution with samples in the vector lanes, forward, with bias, ReLU and
// 2x2 max-pool in one pass. batch_lanes.h describes each function.
//
// Method     forward keeps a tile of kernels x pixels in registers over all (c, r, s). A pooled
//            tile is 2 rows x 2 columns, so the maximum is taken in registers. A column is one
//            pixel, or a vector of Ratio pixels.
// Choices    kKernels 6 fills 31 of 32 registers: 6 x 4 accumulators + 6 weights + 1 x. kKernels 3
//            fills 16 of 16 registers: 3 x 4 accumulators + 3 weights + 1 x
// GCC 12 keeps an array on the stack when a loop without unrolling indexes it, so every loop over
// accumulators has an unroll pragma.
// Read next  direct_batch_lanes_cpu.cpp, the registered algorithm; batch_lanes_gradient_simd.cpp,
//            dx
#include "layers/conv2d/batch_lanes/cpu/batch_lanes_parts.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

constexpr int kKernels = kManyRegisters ? 6 : kLanes > 1 ? 3 : 2;

// ---- sums over (c, r, s) -----------------------------------------------------------------------

// A tile of accumulators and the taps inside the image.
struct Tile {
  const float* x;
  const float* w;
  Index channels, r, s;
  Index x_channel, x_row, x_tap;
  Index w_channel, w_row;
  Index row_step, column_step;  // steps in x between accumulators
};

// Adds one chain of products: `channels` channels and `rows` rows of the kernel.
template <int Kernels, int Rows, int Columns>
CONVSCOPE_INLINE void add_chain(const Tile& tile, const float* x_channel, const float* w_channel,
                                Index channels, Index rows, Wide (&sums)[Kernels][Rows * Columns]) {
  for (Index c = channels; c > 0; --c) {
    const float* x_row = x_channel;
    const float* w_row = w_channel;
    for (Index r = rows; r > 0; --r) {
      const float* x = x_row;
      const float* w = w_row;
      for (Index s = tile.s; s > 0; --s) {
        Wide weights[Kernels];
#pragma GCC unroll 8
        for (int k = 0; k < Kernels; ++k) {
          weights[k] = wide::broadcast(w[k]);
          keep_in_register(weights[k]);
        }
#pragma GCC unroll 2
        for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 4
          for (int j = 0; j < Columns; ++j) {
            Wide pixel = wide::load(x + i * tile.row_step + j * tile.column_step);
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

template <int Kernels, int Count>
CONVSCOPE_INLINE void keep_totals(const Wide (&sums)[Kernels][Count], float* totals) {
#pragma GCC unroll 8
  for (int k = 0; k < Kernels; ++k) {
#pragma GCC unroll 4
    for (int i = 0; i < Count; ++i) store(totals + (k * Count + i) * kWide, sums[k][i]);
  }
}
template <int Kernels, int Count>
CONVSCOPE_INLINE void add_totals(const float* totals, Wide (&sums)[Kernels][Count]) {
#pragma GCC unroll 8
  for (int k = 0; k < Kernels; ++k) {
#pragma GCC unroll 4
    for (int i = 0; i < Count; ++i) {
      sums[k][i] = wide::load(totals + (k * Count + i) * kWide) + sums[k][i];
    }
  }
}
template <int Kernels, int Count>
CONVSCOPE_INLINE void start_from_zero(Wide (&sums)[Kernels][Count]) {
#pragma GCC unroll 8
  for (int k = 0; k < Kernels; ++k) {
#pragma GCC unroll 4
    for (int i = 0; i < Count; ++i) sums[k][i] = no_wide();
  }
}

// Adds all products of a tile, in chains of at most kSumChain (framework/simd/sum_chain.h).
template <int Kernels, int Rows, int Columns>
CONVSCOPE_INLINE void add_products(const Tile& tile, Wide (&sums)[Kernels][Rows * Columns]) {
  alignas(64) float totals[Kernels * Rows * Columns * kWide];
  const Index taps = tile.r * tile.s;
  Index channels = tile.channels;
  Index rows = tile.r;
  if (channels * taps > kSumChain) {
    channels = larger(1, kSumChain / taps);
    rows = smaller(tile.r, larger(1, kSumChain / tile.s));
  }
  Index c = 0;
  Index r = 0;
  for (;;) {
    add_chain<Kernels, Rows, Columns>(tile, tile.x + c * tile.x_channel + r * tile.x_row,
                                      tile.w + c * tile.w_channel + r * tile.w_row,
                                      smaller(channels, tile.channels - c),
                                      smaller(rows, tile.r - r), sums);
    if (c > 0 || r > 0) add_totals(totals, sums);
    r += rows;
    if (r >= tile.r) {
      r = 0;
      c += channels;
    }
    if (c >= tile.channels) return;
    keep_totals(sums, totals);
    start_from_zero(sums);
  }
}

// The destination of one tile in y.
struct Target {
  const float* bias;  // of its first kernel, or null
  bool relu;
  float* y;
  Index y_channel, y_step;  // steps to the next kernel and column
  int count;                // lanes to store, if not all
  std::uint8_t* winners;
};

template <int Kernels, int Count>
CONVSCOPE_INLINE void start_from_bias(const float* bias, Wide (&sums)[Kernels][Count]) {
#pragma GCC unroll 8
  for (int k = 0; k < Kernels; ++k) {
    const Wide start = bias == nullptr ? no_wide() : wide::broadcast(bias[k]);
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
      store(target.y + k * target.y_channel + j * target.y_step, sums[k][j]);
    }
  }
}

// Computes a row shorter than one vector, one kernel at a time.
void short_tile(const Tile& tile, const Target& target, Index kernels) {
  for (Index k = 0; k < kernels; ++k) {
    Wide sum = target.bias == nullptr ? no_wide() : wide::broadcast(target.bias[k]);
    Wide chain = no_wide();
    Index length = 0;
    for (Index c = 0; c < tile.channels; ++c) {
      for (Index r = 0; r < tile.r; ++r) {
        for (Index s = 0; s < tile.s; ++s) {
          const float* const x = tile.x + c * tile.x_channel + r * tile.x_row + s * tile.x_tap;
          const float w = tile.w[c * tile.w_channel + r * tile.w_row + s * kernels + k];
          chain = fma(wide::broadcast(w), wide::load_first(x, target.count), chain);
        }
        length += tile.s;
        if (length < kSumChain) continue;
        sum = sum + chain;
        chain = no_wide();
        length = 0;
      }
    }
    sum = sum + chain;
    if (target.relu) sum = rectified(sum);
    store_first(target.y + k * target.y_channel, sum, target.count);
  }
}

template <int Kernels, int Ratio, int Columns>
CONVSCOPE_INLINE void store_pooled(const Wide (&sums)[Kernels][2 * Columns], const Target& target,
                                   bool ordered) {
#pragma GCC unroll 8
  for (int k = 0; k < Kernels; ++k) {
    const Wide a = sums[k][0], b = sums[k][Columns - 1];
    const Wide c = sums[k][Columns], d = sums[k][2 * Columns - 1];
    float* const y = target.y + k * target.y_channel;
    std::uint8_t* const winners = target.winners + k * target.y_channel;
    alignas(64) float values[kWide];
    std::uint8_t bytes[kWide];
    store_largest(even_pixels<Ratio>(a, b), odd_pixels<Ratio>(a, b), even_pixels<Ratio>(c, d),
                  odd_pixels<Ratio>(c, d), target.relu, ordered, Columns == 2 ? y : values,
                  Columns == 2 ? winners : bytes);
    if constexpr (Columns == 1) {  // only half of the lanes are windows
      __builtin_memcpy(y, values, sizeof(values) / 2);
      __builtin_memcpy(winners, bytes, sizeof(bytes) / 2);
    }
  }
}

// Computes a pooled tile: two rows, and two columns or one vector of several pixels.
template <int Kernels, int Ratio, int Columns>
void pooled_tile(const Tile& tile, const Target& target) {
  Wide sums[Kernels][2 * Columns];
  start_from_bias(target.bias, sums);
  add_products<Kernels, 2, Columns>(tile, sums);
  wide::Mask nan = unordered(sums[0][0], sums[0][Columns]);
#pragma GCC unroll 8
  for (int k = 0; k < Kernels; ++k) {
    nan = either(nan, either(unordered(sums[k][0], sums[k][Columns - 1]),
                             unordered(sums[k][Columns], sums[k][2 * Columns - 1])));
  }
  if (__builtin_expect(any(nan), 0)) {
    store_pooled<Kernels, Ratio, Columns>(sums, target, false);
  } else {
    store_pooled<Kernels, Ratio, Columns>(sums, target, true);
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

constexpr int kept(int kernels) { return kernels <= kKernels ? kernels : 1; }

template <int Ratio, int Columns>
TileFunction pooled_of(Index kernels) {
  constexpr TileFunction kTable[6] = {
      pooled_tile<1, Ratio, Columns>,       pooled_tile<kept(2), Ratio, Columns>,
      pooled_tile<kept(3), Ratio, Columns>, pooled_tile<kept(4), Ratio, Columns>,
      pooled_tile<kept(5), Ratio, Columns>, pooled_tile<kept(6), Ratio, Columns>};
  return kTable[kernels - 1];
}
TileFunction pooled_of(Index kernels, Index ratio, Index columns) {
  if (ratio == 1) return pooled_of<1, 2>(kernels);
  if (ratio == 2) return columns == 2 ? pooled_of<2, 2>(kernels) : pooled_of<2, 1>(kernels);
  return columns == 2 ? pooled_of<4, 2>(kernels) : pooled_of<4, 1>(kernels);
}

// The taps whose input range [at + tap * step, at + tap * step + span) overlaps [begin, end).
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

}  // namespace

// Runs one pass over an image. Loops over rows (pairs of rows when pooled), tiles and blocks of
// kernels.
void run_pass(const ImagePass& z, bool pooled) {
  const Index lanes = z.lanes;
  const Index ratio = kWide > lanes ? kWide / lanes : 1;
  const Index parts = lanes > kWide ? lanes / kWide : 1;  // vectors of one pixel
  const Blocks blocks(z.kernels, kKernels);
  const Index x_row = z.columns * lanes;
  // Each accumulator is one vector. It belongs to one pixel, or to `ratio` neighbouring pixels.
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
      const Index left = row_floats - done;
      Index count = smaller(width, left / step_y);
      Index at = done;
      done += count * step_y;
      if (pooled && count == 1 && left > step_y && row_floats >= width * step_y) count = 0;
      if (count == 0) {  // the rest: overlaps the previous tile
        count = pooled && left > step_y ? width : 1;
        at = row_floats - count * step_y;
        done = row_floats;
      }
      const bool too_short = at < 0;  // the row is shorter than one vector
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
            pooled_of(size, ratio, count)(tile, target);
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

// Packs w as [blocks of `kernels`][channels][r][s][block]. The weight of (kernel, channel, tap) is
// w[kernel * k_step + channel * c_step + tap]. `rotated` rotates the taps by 180 degrees.
void pack_blocks(const float* w, Index kernels, Index k_step, Index channels, Index c_step,
                 Index taps, bool rotated, float* to) {
  const Blocks blocks(kernels, kKernels);
  for (Index block = 0; block < blocks.blocks; ++block) {
    const float* const from = w + blocks.begin(block) * k_step;
    const Index size = blocks.size(block);
    for (Index c = 0; c < channels; ++c) {
      for (Index tap = 0; tap < taps; ++tap) {
        const Index at = c * c_step + (rotated ? taps - 1 - tap : tap);
        for (Index k = 0; k < size; ++k) *to++ = from[k * k_step + at];
      }
    }
  }
}

namespace {

void pack_weights(const LanesConv& z, const float* w, float* packed) {
  pack_blocks(w, z.k, z.c * z.r * z.s, z.c, z.r * z.s, z.r * z.s, false, packed);
}

void forward(const LanesConv& z, const float* x, const float* packed, const float* b, float* y,
             std::uint8_t* winners, float* scratch) {
  ImagePass pass{};
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
  const bool two_steps = z.pool2x2 && z.conv_q * z.lanes < 16;
  if (two_steps) {
    pass.y = scratch;
    pass.relu = false;
  }
  run_pass(pass, z.pool2x2 && !two_steps);
  if (two_steps) {
    max_pool2x2(z.k, z.conv_p, z.conv_q, z.lanes, z.relu, scratch, y, winners);
  }
}

}  // namespace
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
                                     .to_lanes = CONVSCOPE_ISA::to_lanes,
                                     .from_lanes = CONVSCOPE_ISA::from_lanes}))
