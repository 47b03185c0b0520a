// SPDX-License-Identifier: Apache-2.0
// stem_tiles_simd.cpp: register tiles of a first layer's forward pass: every product of the list
// adds one weight vector times each pixel. stem.cpp combines the tiles into y.
//
// Choices    AVX-512: 14 pixels x 2 vectors = 28 accumulators + 2 of weights + 1 broadcast, of 32
//            registers: 16 loads for 28 FMAs. AVX2: 6 x 2 = 12 + 2 + 1 of 16. The step from pixel
//            to pixel is a compile-time constant, so that a product has one address.
// GCC 12 keeps an array on the stack if a loop that is not unrolled indexes it. So every loop over
// accumulators has an unroll pragma.
// Read next  stem_tiles.h; stem.cpp, which uses it
#include "framework/simd/simd.h"
#include "framework/simd/sum_chain.h"
#include "layers/conv2d/direct_nchw16c/cpu/stem_tiles.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using Index = std::int64_t;

constexpr int kStemPixels = kManyRegisters ? 14 : 6;
constexpr int kStemBlock = 16;  // channels of a block

template <int Pixels, int Vectors, int Step>
CONVSCOPE_INLINE void add_products(const StemTile& tile, int begin, int end,
                                   Vec (&sums)[Pixels][Vectors]) {
  const float* w = tile.w + Index{begin} * (Vectors * kLanes);
  for (int i = begin; i < end; ++i, w += Vectors * kLanes) {
    const float* const pixel = tile.in + tile.at[i];
    Vec weights[Vectors];
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) weights[v] = load(w + v * kLanes);
#pragma GCC unroll 16
    for (int j = 0; j < Pixels; ++j) {
      const Vec value = broadcast(pixel[j * Step]);
#pragma GCC unroll 2
      for (int v = 0; v < Vectors; ++v) sums[j][v] = fma(value, weights[v], sums[j][v]);
    }
  }
}

template <int Pixels, int Vectors>
CONVSCOPE_INLINE void store_sums(const StemTile& tile, Vec (&sums)[Pixels][Vectors]) {
#pragma GCC unroll 16
  for (int j = 0; j < Pixels; ++j) {
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) {
      const Index at =
          j * kStemBlock + v * kLanes / kStemBlock * tile.out_block + v * kLanes % kStemBlock;
      Vec sum = sums[j][v];
      if (tile.residual != nullptr) sum = sum + load(tile.residual + at);
      // NaN stays NaN, -0 becomes 0.
      if (tile.relu) sum = bounded_relu(sum, broadcast(tile.most));
      const int rest = tile.channels - v * kLanes;
      if (rest >= kLanes) {
        store(tile.out + at, sum);
      } else {  // 0 times NaN would not be 0
        store(tile.out + at, zero());
        if (rest > 0) store_first(tile.out + at, sum, rest);
      }
    }
  }
}

// Computes chains of at most kSumChain products (framework/simd/sum_chain.h).
template <int Pixels, int Vectors, int Step>
void stem_sums(const StemTile& tile) {
  // Prefetches the cache lines of the tile's outputs while the sums are computed.
#pragma GCC unroll 16
  for (int j = 0; j < Pixels; ++j) {
    __builtin_prefetch(tile.out + j * kStemBlock, 1);
    if (Vectors * kLanes > kStemBlock) {
      __builtin_prefetch(tile.out + tile.out_block + j * kStemBlock, 1);
    }
  }
  alignas(64) float kept[Pixels * Vectors * kLanes];
  Vec sums[Pixels][Vectors];
#pragma GCC unroll 2
  for (int v = 0; v < Vectors; ++v) {
    const int rest = tile.channels - v * kLanes;
    const Vec start = tile.start == nullptr || rest <= 0
                          ? zero()
                          : load_first(tile.start + v * kLanes, rest < kLanes ? rest : kLanes);
#pragma GCC unroll 16
    for (int j = 0; j < Pixels; ++j) sums[j][v] = start;
  }
  int begin = 0;
  for (; tile.products - begin > kSumChain; begin += kSumChain) {
    add_products<Pixels, Vectors, Step>(tile, begin, begin + kSumChain, sums);
#pragma GCC unroll 16
    for (int j = 0; j < Pixels; ++j) {
#pragma GCC unroll 2
      for (int v = 0; v < Vectors; ++v) {
        float* const total = kept + (j * Vectors + v) * kLanes;
        store(total, begin == 0 ? sums[j][v] : load(total) + sums[j][v]);
        sums[j][v] = zero();
      }
    }
  }
  add_products<Pixels, Vectors, Step>(tile, begin, tile.products, sums);
  if (begin > 0) {
#pragma GCC unroll 16
    for (int j = 0; j < Pixels; ++j) {
#pragma GCC unroll 2
      for (int v = 0; v < Vectors; ++v) {
        sums[j][v] = load(kept + (j * Vectors + v) * kLanes) + sums[j][v];
      }
    }
  }
  store_sums<Pixels, Vectors>(tile, sums);
}

template <int Pixels>
void stem_tile_of(const StemTile& tile, int width, int in_step) {
  if constexpr (Pixels <= kStemPixels) {
    if (width == kLanes) {
      return in_step == 1 ? stem_sums<Pixels, 1, 1>(tile) : stem_sums<Pixels, 1, 2>(tile);
    }
    return in_step == 1 ? stem_sums<Pixels, 2, 1>(tile) : stem_sums<Pixels, 2, 2>(tile);
  }
}

using StemFunction = void (*)(const StemTile&, int width, int in_step);
constexpr StemFunction kStemTiles[14] = {
    stem_tile_of<1>,  stem_tile_of<2>,  stem_tile_of<3>,  stem_tile_of<4>, stem_tile_of<5>,
    stem_tile_of<6>,  stem_tile_of<7>,  stem_tile_of<8>,  stem_tile_of<9>, stem_tile_of<10>,
    stem_tile_of<11>, stem_tile_of<12>, stem_tile_of<13>, stem_tile_of<14>};

void stem_tile(const StemTile& tile, int width, int in_step) {
  kStemTiles[tile.pixels - 1](tile, width, in_step);
}

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(stem_kernels, (StemKernels{.lanes = CONVSCOPE_ISA::kLanes,
                                                  .pixels = CONVSCOPE_ISA::kStemPixels,
                                                  .tile = CONVSCOPE_ISA::stem_tile}))
