// SPDX-License-Identifier: Apache-2.0
// int8_tile_stores.h: turns a tile of 32-bit accumulators into y; for *_int8_simd.cpp files.
//
// GCC 12 keeps an array on the stack if a loop that is not unrolled indexes it. So every loop over
// accumulators has an unroll pragma.
#pragma once

#include "layers/conv2d/int8/shared/cpu/int8_outputs.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using Index = std::int64_t;

constexpr int kBlock = 16;  // channels of a block

// Returns the offset in `out` of vector v of a tile's channels.
constexpr CONVSCOPE_INLINE Index lane_offset(int v, Index block) {
  return v * kLanes / kBlock * block + v * kLanes % kBlock;
}

// Advances to the next of several consecutive tiles.
template <int Pixels>
CONVSCOPE_INLINE void advance(const Int8Tiles& tiles, Int8Tile& tile) {
  const Index pixels = Pixels * tiles.out_step;
  tile.in += Pixels * tiles.in_step;
  tile.out = static_cast<std::uint8_t*>(tile.out) + pixels * (tiles.outputs->codes ? 1 : 4);
  if (tile.residual == nullptr) return;
  const bool floats = tiles.outputs->residual_type == Int8Outputs::Residual::floats;
  tile.residual = static_cast<const std::uint8_t*>(tile.residual) + pixels * (floats ? 4 : 1);
}

// Prefetches the cache lines to which codes will be stored, while the sums are computed.
template <int Pixels, int Vectors>
CONVSCOPE_INLINE void prefetch_lines(const Int8Tiles& tiles, const Int8Tile& tile) {
  if (!tiles.outputs->codes) return;
  constexpr int kBlocks = (Vectors * kLanes + kBlock - 1) / kBlock;
#pragma GCC unroll 16
  for (int b = 0; b < kBlocks; ++b) {
#pragma GCC unroll 28
    for (int j = 0; j < Pixels; j += 4) {
      __builtin_prefetch(
          static_cast<const std::uint8_t*>(tile.out) + b * tiles.out_block + j * tiles.out_step, 1);
    }
  }
}

// Stores y from the sums of a tile, [vectors, pixels, kLanes]. This is a function outside of run(),
// because run() would otherwise contain the code of every kind of output. Passing the sums through
// L1 uses no arithmetic port.
void store_tile(const Int8Tiles& tiles, const Int8Tile& tile, const std::int32_t* kept,
                int vectors) {
  const Int8Outputs& outputs = *tiles.outputs;
  with_output_kind(outputs, [&](auto kind) {
    for (int v = 0; v < vectors; ++v) {
      const ChannelOutputs<decltype(kind)> channels(outputs, tiles.channel + v * kLanes);
      channels.store(kept, tile.pixels, tile.residual, tile.out, lane_offset(v, tiles.out_block),
                     tiles.out_step);
      kept += tile.pixels * kLanes;
    }
  });
}

// Computes in double the codes of vector v of a tile without a residual, where the f32 result is
// too close to a tie.
void correct_codes(const Int8Tiles& tiles, const Int8Tile& tile, const std::int32_t* kept, int v) {
  const ChannelOutputs<OutputKind<true, Int8Outputs::Residual::none>> channels(
      *tiles.outputs, tiles.channel + v * kLanes);
  channels.correct(kept, tile.pixels, nullptr,
                   static_cast<std::uint8_t*>(tile.out) + lane_offset(v, tiles.out_block), 0,
                   tiles.out_step);
}

// Stores codes directly from the registers, for tiles without a residual.
template <int Pixels, int Vectors>
CONVSCOPE_INLINE void store_codes(const Int8Tiles& tiles, const Int8Tile& tile,
                                  const Ints (&sums)[Pixels][Vectors]) {
  const Int8Outputs& outputs = *tiles.outputs;
  const CodeBytes bytes(outputs);
#pragma GCC unroll 16
  for (int v = 0; v < Vectors; ++v) {
    const Vec scale = load(outputs.scale + tiles.channel + v * kLanes);
    const Vec shift = load(outputs.shift + tiles.channel + v * kLanes);
    std::uint8_t* to = static_cast<std::uint8_t*>(tile.out) + lane_offset(v, tiles.out_block);
    Ints least = set_ints(-1);
#pragma GCC unroll 28
    for (int j = 0; j < Pixels; j += 4, to += 4 * tiles.out_step) {
      Ints fixed[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        if (j + i >= Pixels) {
          fixed[i] = fixed[0];
          continue;
        }
        fixed[i] = round_to_ints(fma(to_floats(sums[j + i < Pixels ? j + i : 0][v]), scale, shift));
        least = least_low_halves(least, fixed[i]);
      }
      store_bytes(to, tiles.out_step, bytes(fixed), Pixels - j < 4 ? Pixels - j : 4);
    }
    if (__builtin_expect(lanes_up_to(least, outputs.unsure) != 0, 0)) {
      alignas(64) std::int32_t kept[Pixels * kLanes];
#pragma GCC unroll 28
      for (int j = 0; j < Pixels; ++j) store_ints(kept + j * kLanes, sums[j][v]);
      correct_codes(tiles, tile, kept, v);
    }
  }
}

// Stores y from the sums of a tile.
template <int Pixels, int Vectors>
CONVSCOPE_INLINE void store_sums(const Int8Tiles& tiles, const Int8Tile& tile,
                                 const Ints (&sums)[Pixels][Vectors]) {
  const Int8Outputs& outputs = *tiles.outputs;
  if (outputs.codes && outputs.residual_type == Int8Outputs::Residual::none) {
    return store_codes(tiles, tile, sums);
  }
  alignas(64) std::int32_t kept[Pixels * Vectors * kLanes];  // [Vectors, Pixels, kLanes]
#pragma GCC unroll 28
  for (int j = 0; j < Pixels; ++j) {
#pragma GCC unroll 16
    for (int v = 0; v < Vectors; ++v) store_ints(kept + (v * Pixels + j) * kLanes, sums[j][v]);
  }
  store_tile(tiles, tile, kept, Vectors);
}

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA
