// SPDX-License-Identifier: Apache-2.0
// block_sparse_plan.h: the tiling of a convolution with block-sparse weights, the index of its
// entries, and copies of images to NCHW16c. The tiling has sizes and indices of tiles, of chunks of
// the reduction, and of the work of a thread.
//
// An entry is the 16 weights of a block of output channels for one (c,r,s); weights that no stored
// block contains are 0. Stored blocks of any shape are converted to entries. At density d, blocks
// of B rows need the share 1 - (1 - d)^(16 / B) of all entries. A tap is one (r,s). Tap (r,s) has
// the number s R + r, so taps of one column s are neighbours.
#pragma once

#include <algorithm>
#include <cstddef>

#include "framework/int_math.h"
#include "framework/machine/cache_sizes.h"
#include "framework/parallel.h"
#include "framework/simd/sum_chain.h"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/block_sparse/cpu/block_sparse_tiles.h"
#include "layers/conv2d/problem.h"
#include "layers/conv2d/shared/weight_sums.h"
#include "layers/dispatch/layout/block_copies_simd.h"

namespace convscope::block_sparse {

using Index = std::int64_t;

inline constexpr Index kMaxTaps = 1024;     // of a kernel
inline constexpr double kChunkFlops = 1e6;  // below this, a thread costs more than it saves
inline constexpr Index kMaxImages = 16;     // images whose rows a job interleaves

// Returns how many blocks of 16 output channels a stored block can overlap.
inline Index blocks_touched(Index block_rows) {
  if (block_rows % kChannelBlock == 0) return block_rows / kChannelBlock;
  if (kChannelBlock % block_rows == 0) return 1;
  return (block_rows + kChannelBlock - 2) / kChannelBlock + 1;
}

// The sizes of the index that are equal in all directions.
struct EntryCounts {
  explicit EntryCounts(const Conv2dProblem& z)
      : k_blocks(ceil_div(z.k, kChannelBlock)),
        columns(z.c_per_group() * z.r * z.s),
        taps(z.r * z.s),
        most(std::min(z.weight_format.blocks * z.weight_format.block_columns *
                          blocks_touched(z.weight_format.block_rows),
                      k_blocks * columns)) {}

  Index k_blocks;  // of 16 output channels; each is inside one group
  Index columns;   // of the weight matrix
  Index taps;
  Index most;  // upper bound of entries; exact for blocks of a multiple of 16 rows
};

// The sizes of one pass. In forward, `in` is x and `out` is y; in backward_data, `in` is dy and
// `out` is dx. backward_data splits the rows and columns of dx into parts by their residue modulo
// the stride. Neighbouring pixels of a part read neighbouring pixels of dy.
struct BlockSparseTiling {
  BlockSparseTiling(const Conv2dProblem& problem, Direction direction)
      : z(problem),
        counts(problem),
        forward(direction == Direction::forward),
        in_planes(forward && z.layout == kNchwToNchw16c),
        flat(z.r * z.s == 1 && z.stride_h == 1 && z.stride_w == 1 && z.pad_top == 0 &&
             z.pad_bottom == 0 && z.pad_left == 0 && z.pad_right == 0),
        in_h(forward ? z.h : z.p()),
        in_w(forward ? z.w : z.q()),
        out_h(forward ? z.p() : z.h),
        out_w(forward ? z.q() : z.w),
        in_blocks(ceil_div(forward ? z.c : z.k, kChannelBlock)),
        out_blocks(ceil_div(forward ? z.k : z.c, kChannelBlock)),
        row_step(forward ? z.stride_h : 1),
        column_step(forward ? z.stride_w : 1),
        row_parts(forward ? 1 : z.stride_h),
        column_parts(forward ? 1 : z.stride_w) {
    if (flat) {  // pixels are not arranged in rows
      in_w = out_w = in_h * in_w;
      in_h = out_h = 1;
    }
    const BlockSparseKernels& kernels = block_sparse_kernels.get();
    in_pixel = in_planes ? 1 : kChannelBlock;
    pixels = forward ? kernels.pixels : kernels.dot_pixels;
    line = ceil_div(out_w, column_parts);
    // A tile uses several rows if rows are too short to fill its registers.
    double best = 0;
    for (const Index rows : {1, 2, 3, 4, 7}) {
      if (rows > pixels || (rows > 1 && forward && column_step > 2)) break;
      const double filled =
          static_cast<double>(rows * line) / static_cast<double>(ceil_div(line, pixels / rows));
      if (filled <= 1.15 * best) continue;
      best = filled;
      tile_rows = rows;
    }
    cut();
  }

  Index in_plane() const { return in_h * in_w * in_pixel; }  // floats of 16 channels (NCHW: of one)
  Index in_image() const { return (in_planes ? z.c : in_blocks) * in_plane(); }
  // Returns the offset of a channel of `in`.
  Index channel_at(Index channel) const {
    return in_planes ? channel * in_plane()
                     : channel / kChannelBlock * in_plane() + channel % kChannelBlock;
  }
  Index out_plane() const { return out_h * out_w * kChannelBlock; }

  // Returns the shift of kernel row r: row i of a part reads row i * row_step + shift of `in`.
  Index row_shift(Index r) const {
    return forward ? r * z.dilation_h - z.pad_top
                   : (row_part(r) + z.pad_top - r * z.dilation_h) / z.stride_h;
  }
  Index row_part(Index r) const {
    return forward ? 0 : residue(r * z.dilation_h - z.pad_top, z.stride_h);
  }
  Index column_shift(Index s) const {
    return forward ? s * z.dilation_w - z.pad_left
                   : (column_part(s) + z.pad_left - s * z.dilation_w) / z.stride_w;
  }
  Index column_part(Index s) const {
    return forward ? 0 : residue(s * z.dilation_w - z.pad_left, z.stride_w);
  }
  // Returns the shift that tap (r,s) causes, in floats of `in`.
  Index shift(Index tap) const {
    return (row_shift(tap % z.r) * in_w + column_shift(tap / z.r)) * in_pixel;
  }

  // Returns the largest number of columns of a tile. All tiles of a line have nearly equal widths.
  Index widest_tile() const { return ceil_div(line, ceil_div(line, pixels / tile_rows)); }

  // Returns the chunk that holds a channel. In forward a chunk is a range of input channels. The
  // pixels of a chunk that a tile reads stay in L1 over all blocks of output channels.
  Index chunk_of(Index channel) const {
    return channel / kChannelBlock / chunk_blocks;
  }  // of a group
  // Returns the number of segments of the index: [k blocks, chunks, taps] in forward, [C, taps] in
  // backward_data.
  Index segments() const {
    return forward ? counts.k_blocks * chunks * counts.taps : z.c * counts.taps;
  }

  const Conv2dProblem& z;
  EntryCounts counts;
  bool forward;
  bool in_planes;  // `in` is [N,C,H,W]; else NCHW16c
  bool flat;
  Index in_h, in_w, out_h, out_w;
  Index in_blocks, out_blocks;     // of an image
  Index in_pixel = kChannelBlock;  // floats from a pixel of `in` to its neighbour
  Index row_step, column_step;
  Index row_parts, column_parts;
  Index pixels = 0, line = 0, tile_rows = 1;
  Index chunk_blocks = 1, chunks = 1;
  // The sizes of a job, which is the share of the work that a thread takes at a time, and the
  // number of jobs.
  Index images_at_once = 1, image_jobs = 1, rows_at_once = 1, row_jobs = 1, splits = 1;
  Index group_blocks = 1, in_group_blocks = 1;  // blocks of channels of a group, in `out` and `in`
  Index blocks_at_once = 1;                     // blocks of `out` whose entries stay in L2

 private:
  static Index residue(Index a, Index b) { return a - floor_div(a, b) * b; }

  void cut() {
    const CacheSizes& caches = cache_sizes();
    const auto l1 = static_cast<Index>(caches.l1 / sizeof(float));
    const auto l2 = static_cast<Index>(caches.l2 / sizeof(float));
    const Index in_channels = forward ? z.c_per_group() : z.k_per_group();
    const Index depth = ceil_div(in_channels, kChannelBlock);
    in_group_blocks = depth;
    group_blocks = ceil_div(forward ? z.k_per_group() : z.c_per_group(), kChannelBlock);
    if (forward) {
      const Index columns = widest_tile() * column_step + (z.s - 1) * z.dilation_w;
      const Index tile_floats = tile_rows * z.r * columns * kChannelBlock;
      chunk_blocks = std::clamp<Index>(l1 * 5 / 8 / tile_floats, 1, depth);
      chunks = ceil_div(depth, chunk_blocks);
      chunk_blocks = ceil_div(depth, chunks);
      chunks = ceil_div(depth, chunk_blocks);
    }
    const Index entry = 17 * counts.most / std::max<Index>(1, z.groups * group_blocks);
    blocks_at_once = std::clamp<Index>(l2 / 4 / std::max<Index>(1, entry), 1, group_blocks);
    // A job is the part of the work that a thread takes at a time. It covers several images, and a
    // tile takes its rows from different images: rows at the same height have the same taps inside.
    const Index rows = ceil_div(out_h, row_parts);
    const Index row_floats = depth * kChannelBlock * in_w * std::min(z.r, in_h);
    const Index fit = std::max<Index>(1, l2 / 4 / row_floats);
    if (tile_rows > 1) images_at_once = std::clamp<Index>(fit, tile_rows, kMaxImages);
    images_at_once = std::min(images_at_once, z.n);
    image_jobs = ceil_div(z.n, images_at_once);
    images_at_once = ceil_div(z.n, image_jobs);
    image_jobs = ceil_div(z.n, images_at_once);
    const int threads = num_threads();
    const double flops = z.nominal_flops() * static_cast<double>(counts.most) /
                         static_cast<double>(std::max<Index>(1, counts.k_blocks * counts.columns));
    const auto worth = std::max<Index>(1, static_cast<Index>(flops / kChunkFlops));
    const Index wanted = std::min<Index>(threads == 1 ? 1 : std::max(8, 2 * threads), worth);
    const Index missing = ceil_div(wanted, image_jobs * z.groups);
    if (tile_rows == 1) row_jobs = std::clamp<Index>(missing, 1, rows);
    rows_at_once = ceil_div(rows, row_jobs);
    row_jobs = ceil_div(rows, rows_at_once);
    splits = std::clamp<Index>(ceil_div(missing, row_jobs), 1, group_blocks);
  }
};

// ---- the index: entries in the order in which a kernel reads them -------------------------------

// The arrays of an index, stored in one buffer. `most` (EntryCounts) is the largest possible number
// of entries.
struct Index16 {
  std::int32_t* segment = nullptr;  // [segments + 1]: first entry of each segment
  std::int32_t* offset = nullptr;   // [most + 1]
  float* value = nullptr;           // [most + 1, 16]
};
std::size_t index_bytes(const EntryCounts& counts, Index segments);
Index16 index_at(const EntryCounts& counts, Index segments, void* memory);

// Builds the index of forward or backward_data; needs `index_scratch` bytes of scratch memory.
std::size_t index_scratch(const BlockSparseTiling& pass);
void make_index(const BlockSparseTiling& pass, const BlockSparseView& w, const Index16& out,
                void* scratch);

// Builds the index of backward_weight. places[k block, column] is the index of the entry for a
// column of the weight matrix, or -1. The entries are those of a forward pass with one chunk; their
// values are not stored.
void make_places(const BlockSparseTiling& pass, const BlockSparseView& w, const Index16& out,
                 std::int32_t* places, void* scratch);

// ---- images -------------------------------------------------------------------------------------

// Copies of images to NCHW16c and back. NCHW problems and images of one pixel need them.
//
// Images [n,c,plane] in NCHW. If row > 0, the tensor is a matrix [n * plane, row] instead: each
// matrix row is one pixel with c channels.
struct Images {
  Index n, c, plane;
  Index row = 0;
  Index blocks() const { return ceil_div(c, kChannelBlock); }
  // Returns the size of the copy in NCHW16c.
  Index floats() const { return piece_floats(n * blocks() * plane * kChannelBlock); }
};

// Tells whether images and kernels have one pixel, as in a linear layer. The pixels of such images
// form one row, so that a tile has many pixels.
inline bool has_one_pixel(const Conv2dProblem& z) {
  return z.n > 1 && z.h * z.w * z.r * z.s == 1 && z.p() * z.q() == 1 && z.layout.x == z.layout.y;
}
// Returns an equivalent problem for images of one pixel: the pixels of up to kSumChain images
// (sum_chain.h) become one image of one row.
inline Conv2dProblem side_by_side(const Conv2dProblem& z) {
  Conv2dProblem out = z;
  if (!has_one_pixel(z)) return out;
  out.w = std::min<Index>(z.n, kSumChain);
  while (z.n % out.w != 0) --out.w;
  out.n = z.n / out.w;
  out.stride_h = out.stride_w = 1;
  return out;
}

// Copies the first `lanes` of 16 floats. If lanes is 16, the constant count compiles to vector
// copies.
inline void copy_lanes(const float* from, Index lanes, float* to) {
  if (lanes == kChannelBlock) {
    std::copy_n(from, kChannelBlock, to);
  } else {
    std::copy_n(from, lanes, to);
  }
}

// Calls copy(image, block, channels) for each block of each image.
template <class Copy>
void for_each_block(const Images& images, const Copy& copy) {
  parallel_for(images.n * images.blocks(), std::max<Index>(1, 4096 / images.plane),
               [&](Index begin, Index end) {
                 for (Index i = begin; i < end; ++i) {
                   const Index block = i % images.blocks();
                   copy(i / images.blocks(), block,
                        std::min(kChannelBlock, images.c - block * kChannelBlock));
                 }
               });
}

inline void to_nchw16c(const Images& images, const float* from, float* blocks) {
  const BlockCopyKernels& kernels = block_copy_kernels.get();
  for_each_block(images, [&](Index n, Index block, Index channels) {
    const Index c = block * kChannelBlock;
    float* to = blocks + (n * images.blocks() + block) * images.plane * kChannelBlock;
    if (images.row == 0) {
      return kernels.to_block(from + (n * images.c + c) * images.plane, images.plane,
                              static_cast<int>(channels), images.plane, false, to);
    }
    const float* at = from + n * images.plane * images.row + c;
    for (Index i = 0; i < images.plane; ++i, at += images.row, to += kChannelBlock) {
      copy_lanes(at, channels, to);
      std::fill_n(to + channels, kChannelBlock - channels, 0.0f);
    }
  });
}

// Copies NCHW16c back to the layout of `images`. If images.row > 0, it also copies lanes after the
// last channel, up to the end of the matrix row.
inline void from_nchw16c(const Images& images, const float* blocks, float* to) {
  const BlockCopyKernels& kernels = block_copy_kernels.get();
  for_each_block(images, [&](Index n, Index block, Index channels) {
    const Index c = block * kChannelBlock;
    const float* from = blocks + (n * images.blocks() + block) * images.plane * kChannelBlock;
    if (images.row == 0) {
      return kernels.to_planes(from, images.plane, static_cast<int>(channels), images.plane, false,
                               to + (n * images.c + c) * images.plane);
    }
    const Index lanes = std::min(kChannelBlock, images.row - c);
    float* at = to + n * images.plane * images.row + c;
    for (Index i = 0; i < images.plane; ++i, at += images.row, from += kChannelBlock) {
      copy_lanes(from, lanes, at);
    }
  });
}

// ---- backward_weight ----------------------------------------------------------------------------

std::size_t sums_bytes(const Conv2dProblem& problem);
// Computes dw of the problem `computed`, which side_by_side() returned; x and dy are NCHW16c.
void sum_weights(const Conv2dBackwardWeightArgs& args, const Conv2dProblem& computed,
                 const float* x, const float* dy, float* workspace);

}  // namespace convscope::block_sparse
