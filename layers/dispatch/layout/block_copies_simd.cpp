// SPDX-License-Identifier: Apache-2.0
// block_copies_simd.cpp: f32 images between planes and blocks of 16 channels.
//
// Method    tiles of 16 pixels x 16 channels, transposed in registers as one 16x16 (AVX-512) or
//           four 8x8 (AVX2) matrices. A tile has 16 pixels, because 16 pixels of a channel are one
//           cache line. With smaller tiles a line would be read in two parts. In planes whose size
//           is a power of two, the lines of all channels compete for a few cache sets, so the line
//           would be evicted before its second part is read
#include "layers/dispatch/layout/block_copies_simd.h"

#include "framework/simd/lane_transpose.h"
#include "framework/simd/simd.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using std::int64_t;

constexpr int kBlock = 16;

// Copies a tile of kLanes channels and `width` pixels. Only the first `lanes` channels exist.
template <bool kAdd>
CONVSCOPE_INLINE void tile_to_block(const float* planes, int64_t plane, int lanes, int width,
                                    float* block) {
  Vec v[kLanes];
#pragma GCC unroll 16
  for (int c = 0; c < kLanes; ++c) {
    v[c] = c >= lanes        ? zero()
           : width == kLanes ? load(planes + c * plane)
                             : load_first(planes + c * plane, width);
  }
  transpose(v);
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    if (i >= width) break;
    float* const to = block + i * kBlock;
    store(to, kAdd ? load(to) + v[i] : v[i]);
  }
}

template <bool kAdd>
CONVSCOPE_INLINE void tile_to_planes(const float* block, int64_t plane, int lanes, int width,
                                     float* planes) {
  Vec v[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) v[i] = i < width ? load(block + i * kBlock) : zero();
  transpose(v);
#pragma GCC unroll 16
  for (int c = 0; c < kLanes; ++c) {
    if (c >= lanes) break;
    float* const to = planes + c * plane;
    if (width == kLanes) {
      store(to, kAdd ? load(to) + v[c] : v[c]);
    } else {
      store_first(to, kAdd ? load_first(to, width) + v[c] : v[c], width);
    }
  }
}

// Calls tile(first channel, number of channels, first pixel, pixels) for all tiles of a block; for
// full tiles the counts are compile-time constants.
template <class Tile>
CONVSCOPE_INLINE void for_tiles(int channels, int64_t pixels, const Tile& tile) {
  for (int64_t i = 0; i < pixels; i += kBlock) {
    const int64_t end = pixels < i + kBlock ? pixels : i + kBlock;
    for (int c = 0; c < kBlock; c += kLanes) {
      const int lanes = channels - c < kLanes ? channels - c : kLanes;
      for (int64_t j = i; j < end; j += kLanes) {
        const int width = end - j < kLanes ? static_cast<int>(end - j) : kLanes;
        if (lanes == kLanes && width == kLanes) {
          tile(c, kLanes, j, kLanes);
        } else {
          tile(c, lanes, j, width);
        }
      }
    }
  }
}

template <bool kAdd>
void to_block_as(const float* planes, int64_t plane, int channels, int64_t pixels, float* block) {
  for_tiles(
      channels, pixels, [&](int c, int lanes, int64_t i, int width) __attribute__((always_inline)) {
        tile_to_block<kAdd>(planes + c * plane + i, plane, lanes, width, block + i * kBlock + c);
      });
}

template <bool kAdd>
void to_planes_as(const float* block, int64_t plane, int channels, int64_t pixels, float* planes) {
  for_tiles(
      channels, pixels, [&](int c, int lanes, int64_t i, int width) __attribute__((always_inline)) {
        tile_to_planes<kAdd>(block + i * kBlock + c, plane, lanes, width, planes + c * plane + i);
      });
}

void to_block(const float* planes, int64_t plane, int channels, int64_t pixels, bool add,
              float* block) {
  add ? to_block_as<true>(planes, plane, channels, pixels, block)
      : to_block_as<false>(planes, plane, channels, pixels, block);
}

void to_planes(const float* block, int64_t plane, int channels, int64_t pixels, bool add,
               float* planes) {
  add ? to_planes_as<true>(block, plane, channels, pixels, planes)
      : to_planes_as<false>(block, plane, channels, pixels, planes);
}

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(block_copy_kernels,
                       (BlockCopyKernels{.to_block = CONVSCOPE_ISA::to_block,
                                         .to_planes = CONVSCOPE_ISA::to_planes}))
