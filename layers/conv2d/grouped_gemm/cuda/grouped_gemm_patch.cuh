// SPDX-License-Identifier: Apache-2.0
// grouped_gemm_patch.cuh: what the kernels of grouped_gemm share: a tile's place in the image, the
// copies of its patch, and the places of positions and slots in shared memory.
// Read next  grouped_gemm_plan.h: the words; grouped_gemm_gather.cuh, grouped_gemm_weight.cuh
#pragma once

#include "framework/cuda/async_copy.cuh"
#include "framework/cuda/half_piece.cuh"
#include "framework/cuda/warp_mma.cuh"
#include "layers/conv2d/grouped_gemm/cuda/grouped_gemm_plan.h"

namespace convscope::grouped_gemm {

template <class T>
inline constexpr int kOctetBytes = kOctet * static_cast<int>(sizeof(T));
template <class T>
inline constexpr int kOctetPieces = kOctetBytes<T> / 16;
template <class T>
inline constexpr int kStepSlots = sizeof(T) == 4 ? 1 : 2;

struct TilePlace {
  int image, h, w;  // the first image and position
};
__device__ inline TilePlace place_of_tile(const Sizes& z, int tile) {
  const int row = z.by_tiles_w.divide(tile);
  const int image = z.by_tiles_h.divide(row);
  return {image * z.tile_images, (row - image * z.by_tiles_h.d) * z.tile_h,
          (tile - row * z.by_tiles_w.d) * z.tile_w};
}

struct Position {
  int image, h, w;  // in the tile
};
__device__ inline Position position_of(const Sizes& z, int i) {
  const int row = z.by_tile_w.divide(i);
  const int image = z.by_tile_h.divide(row);
  return {image, row - image * z.tile_h, i - row * z.tile_w};
}

// Bytes of the patch in front of what position i reads by a tap at (0, 0).
__device__ inline int patch_offset(const Sizes& z, const Position& at) {
  const int line = at.image * z.patch_h + at.h * z.step_h;
  return (line * z.columns * z.step_w + at.w) * z.pitch;
}

// Calls copy(piece of the pixel in the image or -1, bytes in the patch) for the pieces of 16 bytes
// that this thread brings; -1: zeros. `first` is the slice's first piece of a pixel.
template <class T, class Copy>
__device__ inline void visit_patch(const Sizes& z, const TilePlace& tile, int first, int pieces,
                                   const Copy& copy) {
  const int count = z.tile_images * z.patch_h * z.patch_w * pieces;
  const int stored = z.in_octets * kOctetPieces<T>;
  const int top = tile.h * z.step_h + z.low_h, left = tile.w * z.step_w + z.low_w;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    const int pixel = z.by_pieces.divide(i);
    const int piece = i - pixel * pieces;
    const int line = z.by_patch_w.divide(pixel);
    const int column = pixel - line * z.patch_w;
    const int image = z.by_patch_h.divide(line);
    const int h = top + line - image * z.patch_h, w = left + column;
    const int n = tile.image + image;
    const bool inside = static_cast<unsigned>(h) < static_cast<unsigned>(z.in_h) &&
                        static_cast<unsigned>(w) < static_cast<unsigned>(z.in_w) && n < z.images &&
                        first + piece < stored;
    const int by_step = z.by_step_w.divide(column);
    const int place = line * z.columns * z.step_w + (column - by_step * z.step_w) * z.columns +
                      by_step;
    const std::int64_t from =
        inside ? ((static_cast<std::int64_t>(n) * z.in_h + h) * z.in_w + w) * stored + first + piece
               : -1;
    copy(from, place * z.pitch + piece * 16);
  }
}

// Queues the copies of a patch.
template <class T>
__device__ inline void copy_patch(const Sizes& z, const TilePlace& tile, int first, int pieces,
                                  const uint4* image, unsigned char* patch) {
  visit_patch<T>(z, tile, first, pieces, [&](std::int64_t from, int to) {
    async_copy<16, false>(patch + to, image + (from < 0 ? 0 : from), from >= 0);
  });
}

// To the nearest TF32; NaN stays NaN.
__device__ inline float to_tf32(float v) { return v == v ? rounded_tf32(v) : v; }
__device__ inline void round_piece(unsigned char* at) {
  auto* const piece = reinterpret_cast<float4*>(at);
  const float4 v = *piece;
  *piece = make_float4(to_tf32(v.x), to_tf32(v.y), to_tf32(v.z), to_tf32(v.w));
}

// Behind async_copy_wait(): f32 that this thread has brought is rounded in place, once for all
// taps that read it.
template <class T>
__device__ inline void round_patch(const Sizes& z, const TilePlace& tile, int first, int pieces,
                                   unsigned char* patch) {
  if constexpr (sizeof(T) == 4) {
    visit_patch<T>(z, tile, first, pieces,
                   [&](std::int64_t, int at) { round_piece(patch + at); });
  }
}

// Bytes from a position's offset to slot `slot` of a phase: octet by octet, tap by tap. A slot that
// fills the last product is read from place 0 and is no part of the sum.
template <class T>
__device__ inline int slot_offset(const Sizes& z, int phase, int slot) {
  const int tap = z.tap_begin[phase] + slot / z.bundle_in;
  return tap < z.tap_begin[phase + 1]
             ? z.tap_at[tap] * z.pitch + slot % z.bundle_in * kOctetBytes<T>
             : 0;
}

}  // namespace convscope::grouped_gemm
