// SPDX-License-Identifier: Apache-2.0
// grouped_gemm_patch.cuh: device functions shared by the kernels of grouped_gemm. They compute the
// position of a tile in the image, copy its patch, and compute the offsets of positions and slots
// in shared memory.
// Read next  grouped_gemm_plan.h: the terms; grouped_gemm_gather.cuh, grouped_gemm_weight.cuh
#pragma once

#include "framework/cuda/async_copy.cuh"
#include "framework/cuda/half_piece.cuh"
#include "framework/cuda/tensor_cores/warp_mma.cuh"
#include "layers/conv2d/grouped_gemm/cuda/grouped_gemm_plan.h"

namespace convscope::grouped_gemm {

template <class T>
inline constexpr int kOctetBytes = kOctet* static_cast<int>(sizeof(T));
template <class T>
inline constexpr int kOctetPieces = kOctetBytes<T> / 16;
template <class T>
inline constexpr int kStepSlots = sizeof(T) == 4 ? 1 : 2;

struct TilePlace {
  int image, h, w;  // first image, and first position (row h, column w) of the tile
};
__device__ inline TilePlace place_of_tile(const GroupedGemmParams& z, int tile) {
  const int row = z.by_tiles_w.divide(tile);
  const int image = z.by_tiles_h.divide(row);
  return {image * z.tile_images, (row - image * z.by_tiles_h.d) * z.tile_h,
          (tile - row * z.by_tiles_w.d) * z.tile_w};
}

struct Position {
  int image, h, w;  // image and position relative to the tile
};
__device__ inline Position position_of(const GroupedGemmParams& z, int i) {
  const int row = z.by_tile_w.divide(i);
  const int image = z.by_tile_h.divide(row);
  return {image, row - image * z.tile_h, i - row * z.tile_w};
}

// Returns the byte offset in the patch of the pixel that tap (0, 0) reads for output position `at`.
__device__ inline int patch_offset(const GroupedGemmParams& z, const Position& at) {
  const int line = at.image * z.patch_h + at.h * z.step_h;
  return (line * z.columns * z.step_w + at.w) * z.pitch;
}

// Distributes an image row over the lanes of a warp. A pixel of the row has `pieces` units of 16
// bytes. Each lane keeps one unit index, loops over pixels and calls visit(pixel of the row, pixel
// of the patch row). The order of the pixels in a patch row is described in grouped_gemm_plan.h
// ("Patch").
struct Lanes {
  int side_by_side, first, piece;

  __device__ explicit Lanes(int pieces) : side_by_side(32 / pieces) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    first = lane / pieces;
    piece = lane - first * pieces;
  }
  template <class Visit>
  __device__ void walk(int pixels, int step, int columns, const Visit& visit) const {
    if (first >= side_by_side) return;
    for (int rest = 0; rest < step; ++rest) {
#pragma unroll 2
      for (int i = first; i * step + rest < pixels; i += side_by_side) {
        visit(i * step + rest, rest * columns + i);
      }
    }
  }
};

// Issues the asynchronous copies of a patch. `first` is the index of the slice's first 16-byte unit
// in a pixel. Each warp copies whole rows.
template <class T>
__device__ inline void copy_patch(const GroupedGemmParams& z, const TilePlace& tile, int first,
                                  const Lanes& lanes, const uint4* image, SharedAddress patch) {
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int stored = z.in_octets * kOctetPieces<T>;
  const int left = tile.w * z.step_w + z.low_w;
  const int piece = first + lanes.piece;
  const int line_bytes = z.columns * z.step_w * z.pitch;
  for (int line = static_cast<int>(threadIdx.x) / 32; line < z.tile_images * z.patch_h;
       line += warps) {
    const int in_image = z.by_patch_h.divide(line);
    const int n = tile.image + in_image;
    const int h = tile.h * z.step_h + z.low_h + line - in_image * z.patch_h;
    const bool is_there =
        n < z.images && piece < stored && static_cast<unsigned>(h) < static_cast<unsigned>(z.in_h);
    const auto inside_w = static_cast<unsigned>(is_there ? z.in_w : 0);
    const uint4* const from =
        image + ((static_cast<std::int64_t>(n) * z.in_h + h) * z.in_w + left) * stored + piece;
    const SharedAddress to = patch + (line * line_bytes + lanes.piece * 16);
    lanes.walk(z.patch_w, z.step_w, z.columns, [&](int column, int place) {
      async_copy_piece(to + place * z.pitch, from + column * stored,
                       static_cast<unsigned>(left + column) < inside_w);
    });
  }
}

__device__ inline void round_piece(unsigned char* at) {
  auto* const piece = reinterpret_cast<float4*>(at);
  const float4 v = *piece;
  *piece = make_float4(to_tf32(v.x), to_tf32(v.y), to_tf32(v.z), to_tf32(v.w));
}

// Rounds the f32 elements that this thread has copied to tf32, in place, so that the taps need not
// round them again. Must be called after async_copy_wait().
template <class T>
__device__ inline void round_patch(const GroupedGemmParams& z, const Lanes& lanes,
                                   unsigned char* patch) {
  if constexpr (sizeof(T) == 4) {
    const int warps = static_cast<int>(blockDim.x) / 32;
    const int line_bytes = z.columns * z.step_w * z.pitch;
    for (int line = static_cast<int>(threadIdx.x) / 32; line < z.tile_images * z.patch_h;
         line += warps) {
      unsigned char* const at = patch + line * line_bytes + lanes.piece * 16;
      lanes.walk(z.patch_w, z.step_w, z.columns,
                 [&](int, int place) { round_piece(at + place * z.pitch); });
    }
  }
}

// Returns the byte offset of slot `slot` of a phase, relative to the patch offset of a position.
// Slots are ordered with octets fastest, then taps. A slot that only fills up the last MMA has
// offset 0; the kernel ignores its values.
template <class T>
__device__ inline int slot_offset(const GroupedGemmParams& z, int phase, int slot) {
  const int tap = z.tap_begin[phase] + slot / z.bundle_in;
  return tap < z.tap_begin[phase + 1]
             ? z.tap_at[tap] * z.pitch + slot % z.bundle_in * kOctetBytes<T>
             : 0;
}

}  // namespace convscope::grouped_gemm
