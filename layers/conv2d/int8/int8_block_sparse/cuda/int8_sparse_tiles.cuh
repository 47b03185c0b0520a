// SPDX-License-Identifier: Apache-2.0
// int8_sparse_tiles.cuh: the kernel of int8_block_sparse_cuda.cu, whose header explains the idea. A
// block copies the patch of a tile of pixels into shared memory, one segment of channels after
// another. Its warps walk along their lists: 16 pixels and eight quads are operand A of two MMAs.
// Read next  int8_sparse_patch.h; int8_sparse_lists.cuh; int8_outputs.cuh
#pragma once

#include "framework/cuda/async_copy.cuh"
#include "framework/cuda/tensor_cores/mma_bytes.cuh"
#include "layers/conv2d/int8/shared/cuda/int8_outputs.cuh"
#include "layers/conv2d/int8/int8_block_sparse/cuda/int8_sparse_lists.cuh"

namespace convscope::int8 {

inline constexpr int kSparseWarps = 8;   // warps of a block
inline constexpr int kGroupPixels = 16;  // pixels of an MMA

struct SparseBytes {
  const uint4* x = nullptr;  // pieces
  SparseLists lists;
  CudaOutputs end;
  SparseView view;
  Patch patch;
  int lists_count = 0, segments = 1, segment_pieces = 1;
  int stage_bytes = 0, places_at = 0;  // in shared memory
  FastDivisor by_tiles_down, by_tiles_across;
  FastDivisor by_used, by_image, by_line;  // slots to copy: of a piece, an image, a row
  FastDivisor by_tile_image, by_columns;   // pixels of the tile: of an image, of a row
};

// The first pixel of a tile.
struct TileOrigin {
  int image, row, column;
};
__device__ inline TileOrigin tile_origin(const SparseBytes& z, int tile) {
  const int line = z.by_tiles_across.divide(tile);
  const int images = z.by_tiles_down.divide(line);
  return {images * z.patch.images, (line - images * z.by_tiles_down.d) * z.patch.rows,
          (tile - line * z.by_tiles_across.d) * z.patch.columns};
}

// Returns the source of copied slot `i`, in pieces of x (-1: outside of the image), and its
// destination, in slots.
__device__ inline int2 place_of_slot(const SparseBytes& z, const TileOrigin& first, int i) {
  const int image = z.by_image.divide(i);
  const int at = i - image * z.by_image.d;
  const int line = z.by_line.divide(at), column = at - line * z.by_line.d;
  const int h = z.patch.high.input(first.row, line);
  const int w = z.patch.wide.input(first.column, column);
  const bool inside = first.image + image < z.view.images &&
                      static_cast<unsigned>(h) < static_cast<unsigned>(z.view.h) &&
                      static_cast<unsigned>(w) < static_cast<unsigned>(z.view.w);
  return make_int2(
      inside ? (first.image + image) * z.view.x_image + h * z.view.x_row + w * z.view.x_column : -1,
      image * z.patch.image_slots + line * z.patch.pitch + column);
}

// Returns two offsets of pixel `i` of the tile: in a stage, in bytes, and in y, in pieces (-1: not
// a pixel). Pixels after the last one read the same x as the last one.
__device__ inline int2 place_of_pixel(const SparseBytes& z, const TileOrigin& first, int i) {
  const int pixel = min(i, z.patch.pixels() - 1);
  const int image = z.by_tile_image.divide(pixel);
  const int at = pixel - image * z.by_tile_image.d;
  const int row = z.by_columns.divide(at), column = at - row * z.by_columns.d;
  const bool there = i == pixel && first.image + image < z.view.images &&
                     first.row + row < z.view.p && first.column + column < z.view.q;
  return make_int2((image * z.patch.image_slots + row * z.patch.pitch + column) * kPiece,
                   there
                       ? (first.image + image) * z.view.y_image +
                             ((first.row + row) * z.view.q + first.column + column) * z.view.y_pixel
                       : -1);
}

// The values that a lane loads for a pair (eight quads): the offsets of two entries, and its part
// of operand B.
struct SparsePair {
  int2 at;
  uint4 w;
};
__device__ inline SparsePair load_pair(const int2* entries, const uint4* weights, int pair) {
  return {__ldg(entries + static_cast<std::int64_t>(pair) * 4),
          __ldg(weights + static_cast<std::int64_t>(pair) * 32)};
}

__device__ inline unsigned word_at(const unsigned char* from, int bytes) {
  return *reinterpret_cast<const unsigned*>(from + bytes);
}

// The offsets in a stage, in bytes, of a lane's pixels in each group of 16. They are stored, or
// computed from one offset and compile-time steps.
template <int kGroups, bool kStraight>
class PixelPlaces {
 public:
  __device__ explicit PixelPlaces(const int2* pixels) {
    const int row = static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
    for (int i = 0; i < kCount; ++i) at_[i] = pixels[row + i * 8].x;
  }
  __device__ int operator()(int group, int half) const {
    const int i = group * 2 + half;
    if constexpr (kStraight) return at_[0] + i * 8 * kPiece;
    return at_[i % kCount];
  }

 private:
  static constexpr int kCount = kStraight ? 1 : kGroups * 2;
  int at_[kCount];
};

// Adds the products of a pair to the accumulators.
template <bool kSigned, int kGroups, bool kStraight>
__device__ inline void add_pair(const SparsePair& pair, const unsigned char* stage,
                                const PixelPlaces<kGroups, kStraight>& pixels,
                                int (&sums)[kGroups][8]) {
  const bool both = pair.at.y >= 0;  // the same in all lanes
  const unsigned char* const first = stage + pair.at.x;
  const unsigned char* const second = stage + (both ? pair.at.y : 0);
#pragma unroll
  for (int j = 0; j < kGroups; ++j) {
    const unsigned x[4] = {word_at(first, pixels(j, 0)), word_at(first, pixels(j, 1)),
                           both ? word_at(second, pixels(j, 0)) : 0,
                           both ? word_at(second, pixels(j, 1)) : 0};
    mma_bytes<kSigned>(sums[j], x, pair.w.x, pair.w.z);
    mma_bytes<kSigned>(sums[j] + 4, x, pair.w.y, pair.w.w);
  }
}

// Kernel: blockIdx.x selects a tile of pixels, blockIdx.y kLists lists. kSparseWarps / kLists warps
// share a list; each of these warps takes every n-th pair of the list.
template <bool kSigned, int kGroups, int kLists, bool kStraight>
__global__ __launch_bounds__(32 * kSparseWarps,
                             2) void sparse_bytes_kernel(const __grid_constant__ SparseBytes z) {
  constexpr int kShare = kSparseWarps / kLists;
  constexpr int kBlockThreads = 32 * kSparseWarps;
  __shared__ Factors<kLists * kListRows> factors;
  __shared__ int2 pixels[kGroups * kGroupPixels];
  unsigned char* const stages = dynamic_shared<unsigned char>();
  int2* const places = reinterpret_cast<int2*>(stages + z.places_at);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int local_list = warp / kShare, part = warp % kShare;
  const int list = static_cast<int>(blockIdx.y) * kLists + local_list;
  const bool has_list = list < z.lists_count;
  const int used = z.patch.used();
  {
    const TileOrigin first = tile_origin(z, static_cast<int>(blockIdx.x));
    for (int i = thread; i < used; i += kBlockThreads) places[i] = place_of_slot(z, first, i);
    if (thread < kGroups * kGroupPixels) pixels[thread] = place_of_pixel(z, first, thread);
  }
  __syncthreads();
  let_next_kernel_start();
  wait_for_previous_kernel();

  const auto copy_segment = [&](int segment) {
    unsigned char* const stage = stages + segment % 2 * z.stage_bytes;
    const int first = segment * z.segment_pieces;
    const int count = min(z.segment_pieces, z.view.pieces - first) * used;
    for (int i = thread; i < count; i += kBlockThreads) {
      const int piece = z.by_used.divide(i);
      const int2 place = places[i - piece * used];
      async_copy<kPiece, false>(
          stage + (piece * z.patch.slots + place.y) * kPiece,
          z.x + (place.x < 0 ? 0 : place.x + (first + piece) * z.view.x_piece), place.x >= 0);
    }
    async_copy_commit();
  };
  copy_segment(0);
  const int* const ends = z.lists.end + (has_list ? list * z.segments : 0);
  int pair = has_list ? z.lists.begin[list] + part : 0;
  const int last = has_list ? ends[z.segments - 1] : 0;
  // Loads run two pairs ahead. After the last pair they read the last pair again.
  const int2* const entries = z.lists.entries + lane % 4;
  const uint4* const weights = z.lists.weights + lane;
  SparsePair now{}, next{};
  if (pair < last) {
    now = load_pair(entries, weights, pair);
    next = load_pair(entries, weights, min(pair + kShare, last - 1));
  }
  make_factors(z.end, static_cast<int>(blockIdx.y) * kLists * kListRows, factors);
  const PixelPlaces<kGroups, kStraight> at(pixels);
  int sums[kGroups][8] = {};
  for (int segment = 0; segment < z.segments; ++segment) {
    const int end = has_list ? ends[segment] : 0;
    async_copy_wait<0>();
    __syncthreads();  // the segment is loaded, and no thread reads the previous one any longer
    if (segment + 1 < z.segments) copy_segment(segment + 1);
    const unsigned char* const stage = stages + segment % 2 * z.stage_bytes;
#pragma unroll 2
    for (; pair < end; pair += kShare) {
      const SparsePair ahead = load_pair(entries, weights, min(pair + 2 * kShare, last - 1));
      add_pair<kSigned>(now, stage, at, sums);
      now = next;
      next = ahead;
    }
  }

  const int first_channel = static_cast<int>(blockIdx.y) * kLists * kListRows;
  const int local = local_list * kListRows + lane % 4 * 4;
  // `eight` has the sums of two pixels and four channels.
  const auto store_group = [&](auto known, int j, const int(&eight)[8]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int to = pixels[j * kGroupPixels + lane / 4 + half * 8].y;
      if (to < 0 || !has_list) continue;
      const int four[4] = {eight[2 * half], eight[2 * half + 1], eight[4 + 2 * half],
                           eight[5 + 2 * half]};
      store_four<decltype(known)::kind>(
          z.end, factors, first_channel, local, four,
          (static_cast<std::int64_t>(to) + list * z.view.y_block) * kPiece + lane % 4 * 4);
    }
  };
  if constexpr (kShare == 1) {
    with_kind(z.end, [&](auto known) {
#pragma unroll
      for (int j = 0; j < kGroups; ++j) store_group(known, j, sums[j]);
    });
  } else {
    // The warps of a list divide its groups of pixels. Each warp adds the sums of all warps for
    // some groups and stores their y.
    int* const parts = reinterpret_cast<int*>(stages) + local_list * (kShare * kGroups * 8 * 32);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kGroups * 8; ++i) {
      parts[(part * kGroups * 8 + i) * 32 + lane] = sums[i / 8][i % 8];
    }
    __syncthreads();
    with_kind(z.end, [&](auto known) {
      for (int j = part; j < kGroups; j += kShare) {
        int eight[8] = {};
        for (int other = 0; other < kShare; ++other) {
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            eight[i] += parts[((other * kGroups + j) * 8 + i) * 32 + lane];
          }
        }
        store_group(known, j, eight);
      }
    });
  }
}

// Returns the bytes of shared memory in which the warps of a list add their sums.
constexpr int sparse_parts_bytes(int groups, int lists) {
  return lists == kSparseWarps ? 0 : kSparseWarps * groups * 8 * 32 * 4;
}

}  // namespace convscope::int8
