// SPDX-License-Identifier: Apache-2.0
// batch_lanes_weight_simd.cpp: backward_weight with samples in the vector lanes, and the reduction
// over lanes at the end of a step. batch_lanes.h describes each function.
//
// Method     dw[k,c,r,s] = sum over samples, p, q of dz[k,p,q] x[c,p+r,q+s]. A tile of Kernels x
//            Taps accumulators (one c, one r, neighbouring s) stays in registers over a few whole
//            rows of dz. These rows of dz, and all rows of x that they are multiplied by, fit into
//            L1. The lanes are not added up here: the caller's buffer holds a vector for each
//            weight, [K,C,R,S,kWide] for dw, then [K,kWide] for db.
// Choices    Registers: Kernels x Taps accumulators + Kernels values of dz + 1 pixel. With 32
//            registers these are 5 x 5 + 5 + 1, with 16 registers 2 x 5 + 2 + 1 or 3 x 3 + 3 + 1.
//            kRowBytes: 24 KiB of the 32 KiB of L1
// Read next  batch_lanes_simd.cpp, the forward pass; batch_lanes_pooled_simd.cpp
#include "layers/conv2d/batch_lanes/cpu/batch_lanes_parts.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

constexpr Index kRowBytes = 24 * 1024;

constexpr int kMaxTaps = kManyRegisters ? 7 : 5;
constexpr int kMaxKernels[8] = {0,
                                kManyRegisters ? 8 : 6,
                                kManyRegisters ? 8 : 4,
                                kManyRegisters ? 8 : 3,
                                kManyRegisters ? 6 : 2,
                                kManyRegisters ? 5 : 2,
                                4,
                                3};

struct WeightTile {
  const float* x;     // the pixel of the first tap
  const float* dz;    // of the first kernel
  Index rows, count;  // rows of dz, whole vectors in each
  int rest;           // lanes of one more vector in each row
  Index x_row, dz_row;
  Index x_step, dz_step;  // from one vector to the next
  Index tap;              // floats between taps
  Index dz_channel;
  float* sums;
  Index sum_channel;  // from one kernel to the next
};

// Adds the products of `Vectors` vectors of dz to `sums`. These vectors are one pixel, or with
// Vectors = 1 possibly several pixels. With Rest, only the first tile.rest lanes are loaded.
template <int Kernels, int Taps, int Vectors, bool Rest>
CONVSCOPE_INLINE void add_pixel(const WeightTile& tile, const float* x, const float* dz,
                                Wide (&sums)[Kernels][Taps]) {
  Wide values[Kernels][Vectors];
#pragma GCC unroll 8
  for (int k = 0; k < Kernels; ++k) {
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) {
      const float* const from = dz + k * tile.dz_channel + v * kWide;
      values[k][v] = Rest ? wide::load_first(from, tile.rest) : wide::load(from);
    }
  }
#pragma GCC unroll 8
  for (int s = 0; s < Taps; ++s) {
    Wide pixel[Vectors];
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) {
      const float* const from = x + s * tile.tap + v * kWide;
      pixel[v] = Rest ? wide::load_first(from, tile.rest) : wide::load(from);
      if constexpr (Kernels > 1) keep_in_register(pixel[v]);
    }
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) {
#pragma GCC unroll 8
      for (int k = 0; k < Kernels; ++k) sums[k][s] = fma(values[k][v], pixel[v], sums[k][s]);
    }
  }
}

template <int Kernels, int Taps>
CONVSCOPE_INLINE void start_from_zero(Wide (&sums)[Kernels][Taps]) {
#pragma GCC unroll 8
  for (int k = 0; k < Kernels; ++k) {
#pragma GCC unroll 8
    for (int s = 0; s < Taps; ++s) sums[k][s] = no_wide();
  }
}

// Adds the registers `sums` to tile.sums.
template <int Kernels, int Taps>
CONVSCOPE_INLINE void add_chain(const WeightTile& tile, const Wide (&sums)[Kernels][Taps]) {
#pragma GCC unroll 8
  for (int k = 0; k < Kernels; ++k) {
#pragma GCC unroll 8
    for (int s = 0; s < Taps; ++s) {
      float* const to = tile.sums + k * tile.sum_channel + s * kWide;
      store(to, wide::load(to) + sums[k][s]);
    }
  }
}

// Adds the products of all pixels of a tile to tile.sums. The accumulators stay in registers for
// one summation chain (framework/simd/sum_chain.h), which has at most kSumChain vectors and the
// partial vector at the end of each row. A chain consists of whole rows, except that a row longer
// than a chain is split.
template <int Kernels, int Taps, int Vectors>
void weight_tile(const WeightTile& tile) {
  constexpr Index kChain = kSumChain / Vectors;
  Index j = 0;
  do {
    const Index count = smaller(kChain, tile.count - j);
    const bool rest = Vectors == 1 && tile.rest > 0 && j + count == tile.count;
    const Index most = kChain / larger(1, count);
    for (Index row = 0; row < tile.rows; row += most) {
      Wide sums[Kernels][Taps];
      start_from_zero(sums);
      const Index end = smaller(tile.rows, row + most);
      for (Index i = row; i < end; ++i) {
        const float* x = tile.x + i * tile.x_row + j * tile.x_step;
        const float* dz = tile.dz + i * tile.dz_row + j * tile.dz_step;
        for (Index left = count; left > 0; --left, x += tile.x_step, dz += tile.dz_step) {
          add_pixel<Kernels, Taps, Vectors, false>(tile, x, dz, sums);
        }
        if constexpr (Vectors == 1) {
          if (rest) add_pixel<Kernels, Taps, 1, true>(tile, x, dz, sums);
        }
      }
      add_chain(tile, sums);
    }
    j += count;
  } while (j < tile.count);
}

using WeightFunction = void (*)(const WeightTile&);

template <int Kernels, int Taps, int Vectors>
constexpr WeightFunction weight_entry() {
  if constexpr (Taps <= kMaxTaps) {
    if constexpr (Kernels <= kMaxKernels[Taps]) return weight_tile<Kernels, Taps, Vectors>;
  }
  return nullptr;
}
template <int Taps, int Vectors>
WeightFunction weight_of(Index kernels) {
  constexpr WeightFunction kTable[8] = {
      weight_entry<1, Taps, Vectors>(), weight_entry<2, Taps, Vectors>(),
      weight_entry<3, Taps, Vectors>(), weight_entry<4, Taps, Vectors>(),
      weight_entry<5, Taps, Vectors>(), weight_entry<6, Taps, Vectors>(),
      weight_entry<7, Taps, Vectors>(), weight_entry<8, Taps, Vectors>()};
  return kTable[kernels - 1];
}
template <int Vectors>
WeightFunction weight_of(Index kernels, Index taps) {
  switch (taps) {
    case 1:
      return weight_of<1, Vectors>(kernels);
    case 2:
      return weight_of<2, Vectors>(kernels);
    case 3:
      return weight_of<3, Vectors>(kernels);
    case 4:
      return weight_of<4, Vectors>(kernels);
    case 5:
      return weight_of<5, Vectors>(kernels);
    case 6:
      return weight_of<6, Vectors>(kernels);
    default:
      return weight_of<7, Vectors>(kernels);
  }
}

}  // namespace

void pad_planes(const LanesConv& z, const float* x, float* padded) {
  const Index row = z.padded_w * z.lanes;
  const Index count = larger(0, smaller(z.w, z.padded_w - z.pad_left)) * z.lanes;
  const Index left = smaller(z.pad_left, z.padded_w) * z.lanes;
  for (Index c = 0; c < z.c; ++c) {
    for (Index i = 0; i < z.padded_h; ++i, padded += row) {
      const Index h = i - z.pad_top;
      if (h < 0 || h >= z.h) {
        clear(padded, row);
        continue;
      }
      const float* const from = x + (c * z.h + h) * z.w * z.lanes;
      clear(padded, left);
      for (Index j = 0; j < count; ++j) padded[left + j] = from[j];
      clear(padded + left + count, row - left - count);
    }
  }
}

void backward_weight(const LanesConv& z, const float* x, const float* dz, float* sums,
                     float* scratch) {
  Index rows = z.h;
  Index columns = z.w;
  if (z.padded) {
    pad_planes(z, x, scratch);
    x = scratch;
    rows = z.padded_h;
    columns = z.padded_w;
  }
  const Index lanes = z.lanes;
  const bool pairs = kPairs && lanes >= 2 * kWide;  // whether two vectors of a pixel are read at
                                                    // once
  const Index part_floats = pairs ? 2 * kWide : kWide;
  const Blocks taps(z.s, kMaxTaps);
  const Blocks kernels(z.k, kMaxKernels[taps.size(0)]);
  WeightTile tile;
  tile.x_row = columns * lanes * z.stride_h;
  tile.dz_row = z.conv_q * lanes;
  tile.dz_channel = z.conv_p * tile.dz_row;
  tile.dz_step = lanes >= kWide ? lanes : kWide;
  tile.x_step = lanes >= kWide ? lanes * z.stride_w : kWide;
  tile.count = tile.dz_row / tile.dz_step;
  tile.rest = static_cast<int>(tile.dz_row - tile.count * tile.dz_step);
  tile.tap = lanes;
  tile.sum_channel = z.c * z.r * z.s * kWide;
  const Index row_bytes =
      (kernels.size(0) * tile.dz_row + tile.x_row) * static_cast<Index>(sizeof(float));
  const Blocks strips(z.conv_p, larger(1, kRowBytes / row_bytes));
  for (Index block = 0; block < kernels.blocks; ++block) {
    const Index k = kernels.begin(block);
    for (Index strip = 0; strip < strips.blocks; ++strip) {
      const Index p = strips.begin(strip);
      tile.rows = strips.size(strip);
      for (Index c = 0; c < z.c; ++c) {
        for (Index r = 0; r < z.r; ++r) {
          for (Index t = 0; t < taps.blocks; ++t) {
            const Index s = taps.begin(t);
            const WeightFunction function =
                pairs ? weight_of < kPairs ? 2 : 1 > (kernels.size(block), taps.size(t))
                      : weight_of<1>(kernels.size(block), taps.size(t));
            tile.sums = sums + (((k * z.c + c) * z.r + r) * z.s + s) * kWide;
            for (Index part = 0; part == 0 || part < lanes; part += part_floats) {
              tile.x = x + (c * rows + p * z.stride_h + r) * columns * lanes + s * lanes + part;
              tile.dz = dz + k * tile.dz_channel + p * tile.dz_row + part;
              function(tile);
            }
          }
        }
      }
    }
  }
}

void reduce(const LanesConv& z, const float* sums, Index step, Index chunks, Index k_begin,
            Index k_end, float* dw, float* db, bool accumulate) {
  const auto total_at = [=](Index i) {
    Wide all = wide::load(sums + i * kWide);
    for (Index chunk = 1; chunk < chunks; ++chunk) {
      all = all + wide::load(sums + chunk * step + i * kWide);
    }
    return sum(all);
  };
  const Index depth = z.c * z.r * z.s;
  for (Index i = k_begin * depth; i < k_end * depth; ++i) {
    const float value = total_at(i);
    dw[i] = accumulate ? dw[i] + value : value;
  }
  if (db == nullptr) return;
  for (Index k = k_begin; k < k_end; ++k) {
    const float value = total_at(z.k * depth + k);
    db[k] = accumulate ? db[k] + value : value;
  }
}

}  // namespace convscope::CONVSCOPE_ISA
