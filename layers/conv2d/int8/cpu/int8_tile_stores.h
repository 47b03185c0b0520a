// SPDX-License-Identifier: Apache-2.0
// int8_tile_stores.h: how a register tile of 32-bit sums becomes y; for *_int8_simd.cpp files.
//
// GCC 12 keeps an array that an ordinary loop indexes on the stack: every loop over sums has an
// unroll pragma.
#pragma once

#include "layers/conv2d/int8/cpu/int8_outputs.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using Index = std::int64_t;

constexpr int kBlock = 16;  // channels of a block

// Where vector v of a tile's channels lies in `out`.
constexpr CONVSCOPE_INLINE Index lane_offset(int v, Index block) {
  return v * kLanes / kBlock * block + v * kLanes % kBlock;
}

// Asks for the lines that codes will be stored to; they come while the sums are made.
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

// y from the sums of a tile, [vectors, pixels, kLanes]. It is not part of run(): its kinds would
// multiply the code, and the way through L1 costs no arithmetic port.
void store_tile(const Int8Tiles& tiles, const Int8Tile& tile, const std::int32_t* kept,
                int vectors) {
  const Int8Outputs& outputs = *tiles.outputs;
  with_output_kind(outputs, [&](auto kind) {
    for (int v = 0; v < vectors; ++v) {
      const ChannelOutputs<decltype(kind)> channels(outputs, tiles.channel + v * kLanes);
      Index at = lane_offset(v, tiles.out_block);
      for (int j = 0; j < tile.pixels; j += 4, at += 4 * tiles.out_step) {
        const int count = tile.pixels - j < 4 ? tile.pixels - j : 4;
        channels.store(kept, count, tile.residual, tile.out, at, tiles.out_step);
        kept += count * kLanes;
      }
    }
  });
}

// Codes straight from the registers, for tiles without a residual. False: some code is not sure,
// and store_tile() has to make them again.
template <int Pixels, int Vectors>
CONVSCOPE_INLINE bool store_codes(const Int8Tiles& tiles, const Int8Tile& tile,
                                  const Ints (&sums)[Pixels][Vectors]) {
  const Int8Outputs& outputs = *tiles.outputs;
  Vec farthest = zero();
#pragma GCC unroll 16
  for (int v = 0; v < Vectors; ++v) {
    const Vec scale = load(outputs.scale + tiles.channel + v * kLanes);
    const Vec shift = load(outputs.shift + tiles.channel + v * kLanes);
    std::uint8_t* to = static_cast<std::uint8_t*>(tile.out) + lane_offset(v, tiles.out_block);
#pragma GCC unroll 28
    for (int j = 0; j < Pixels; j += 4, to += 4 * tiles.out_step) {
      Ints codes[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        if (j + i >= Pixels) {
          codes[i] = codes[0];
          continue;
        }
        const Vec real = fma(to_floats(sums[j + i < Pixels ? j + i : 0][v]), scale, shift);
        codes[i] = round_to_ints(real);
        farthest = larger_size(farthest, distance_to_integer(real, codes[i]));
      }
      const Bytes low = set_bytes(outputs.low), high = set_bytes(outputs.high);
      store_bytes(to, tiles.out_step, to_bytes(codes, low, high), Pixels - j < 4 ? Pixels - j : 4);
    }
  }
  return !any_beyond(farthest, broadcast(outputs.sure));
}

// y from the sums of a tile.
template <int Pixels, int Vectors>
CONVSCOPE_INLINE void store_sums(const Int8Tiles& tiles, const Int8Tile& tile,
                                 const Ints (&sums)[Pixels][Vectors]) {
  const Int8Outputs& outputs = *tiles.outputs;
  const bool plain =
      outputs.codes && outputs.residual_type == Int8Outputs::Residual::none && outputs.low >= 0;
  if (plain && store_codes(tiles, tile, sums)) return;
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
