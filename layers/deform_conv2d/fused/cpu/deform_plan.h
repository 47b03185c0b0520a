// SPDX-License-Identifier: Apache-2.0
// deform_plan.h: the sizes of the blocks, parts and chunks into which fused deformable convolution
// is cut, and the functions that its three directions share.
//
// Block   Up to 16 neighbouring channels of one weight group and one offset group. x is stored in
//         blocks [H W, 16], so that a corner's channels are one cache line.
// Part    Some blocks of a weight group. If x is [N,C,H,W], the part of one image is copied into
//         blocks; the copy is small compared with x. Results of the parts are added in y.
// Chunk   Pixels of y whose samples fill a panel [pixels, R S channels of a part], which stays in
//         L2 while all output channels are summed.
// Strip   Some chunks: backward_data computes places and products for one strip at a time.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "framework/int_math.h"
#include "framework/machine/cache_sizes.h"
#include "framework/memory/memory.h"
#include "framework/parallel.h"
#include "framework/simd/sum_chain.h"
#include "layers/conv2d/shared/nchw16c_tiles.h"
#include "layers/deform_conv2d/algorithm.h"
#include "layers/deform_conv2d/fused/cpu/deform_kernels.h"
#include "layers/deform_conv2d/problem.h"

namespace convscope::deform {

using Index = std::int64_t;

struct Block {
  Index first;   // channel, of its group
  int channels;  // 1 .. 16
};

struct DeformTiling {
  explicit DeformTiling(const DeformConv2dProblem& problem, Direction direction)
      : z(problem),
        in_nchw16c(z.layout == ActivationLayout::nchw16c),
        taps(z.taps()),
        pixels(z.p() * z.q()),
        plane(z.h * z.w),
        kernels(z.k_per_group()),
        padded(round_up(kernels, kChannelBlock)),
        lanes(nchw16c_kernels.get().lanes),
        threads(num_threads()) {
    const Index unit = std::gcd(z.c_per_group(), z.c_per_offset_group());
    for (Index u = 0; u < z.c_per_group(); u += unit) {
      for (Index c = 0; c < unit; c += kChannelBlock) {
        blocks.push_back({u + c, static_cast<int>(std::min(kChannelBlock, unit - c))});
      }
    }
    // Tiles of full height.
    tile = nchw16c_kernels.get().pixels;
    const Index tiles = std::max<Index>(1, kChunkPixels / tile);
    // In the backward pass each chunk adds to a sum, so the chunk size must not depend on the
    // number of threads.
    cut(direction);
    // Smaller chunks help only a forward pass in which several threads share an image.
    const Index at_once = in_nchw16c ? z.n : forward_images();
    const bool shared = direction == Direction::forward && (in_nchw16c || at_once < threads);
    const Index wanted = shared ? ceil_div(4 * threads, at_once) : 1;
    chunk = tile * std::clamp<Index>(ceil_div(pixels, wanted * tile), ceil_div(tiles, 2), tiles);
    chunk = std::min(chunk, pixels);
    strip = std::min(pixels, round_up(kStripPixels, chunk));
  }

  Index group_blocks() const { return static_cast<Index>(blocks.size()); }
  Index parts() const { return ceil_div(group_blocks(), part); }
  Index part_end(Index begin) const { return std::min(begin + part, group_blocks()); }
  const Block& block(Index i) const { return blocks[static_cast<std::size_t>(i)]; }
  Index channels(Index begin, Index end) const {  // of blocks [begin, end)
    return block(end - 1).first + block(end - 1).channels - block(begin).first;
  }
  // Returns the length of a pixel's samples in floats. The last vector may be written beyond this
  // length.
  Index row(Index begin, Index end) const { return taps * channels(begin, end); }
  Index panel_row(Index begin, Index end) const {
    const Index floats = round_up(row(begin, end), kChannelBlock) + kChannelBlock;
    // With a row length of a multiple of 512 bytes, all rows would compete for few sets of L1.
    return floats % 128 == 0 ? floats + kChannelBlock : floats;
  }
  Index offset_group(Index g, Index i) const {
    return (g * z.c_per_group() + block(i).first) / z.c_per_offset_group();
  }
  // Counts the offset groups of blocks [begin, end).
  Index offset_groups(Index g, Index begin, Index end) const {
    return offset_group(g, end - 1) - offset_group(g, begin) + 1;
  }
  static constexpr Index places_floats() { return kPlaceRows * DeformPlaces::kMax; }  // of a tap
  // Returns the largest number of offset groups of a part.
  Index most_offset_groups(Index blocks_at_once) const {
    const Index unit = std::gcd(z.c_per_group(), z.c_per_offset_group());
    return std::min<Index>(z.offset_groups, blocks_at_once / ceil_div(unit, kChannelBlock) + 2);
  }

  // Returns the size of prepared weights in floats. For forward, each group and part has tiles
  // [row, width], whose columns are output channels. For backward_data, each group and block has
  // tiles [output channels, width], whose columns are the 16 R S elements of a sample's gradient.
  Index forward_weights(Index begin, Index end) const {
    return round_up(row(begin, end), kChannelBlock) * padded;
  }
  Index group_forward_weights() const {
    Index sum = 0;
    for (Index b = 0; b < group_blocks(); b += part) sum += forward_weights(b, part_end(b));
    return sum;
  }
  Index taps_at_once() const { return std::max<Index>(1, 2 * lanes / kChannelBlock); }
  Index data_weights() const { return taps * kChannelBlock * padded; }  // of a block
  Index width_at(Index lane, Index count) const {
    return count - lane <= lanes ? lanes : 2 * lanes;
  }

  // Returns how many images backward_data computes at once, given the buffer size of one image in
  // floats. If this size fits into half of L2, each thread computes one image. For larger images,
  // the buffers of all images together may take `threads` twentieths of the size of x and y.
  Index images_at_once(Index floats) const {
    const Index most = std::min<Index>(z.n, threads);
    if (fits_beside(floats)) return most;
    const Index room = threads * (z.n * (z.c * plane + z.k * pixels)) / 20;
    return std::clamp<Index>(room / floats, 1, most);
  }
  // Returns how many NCHW images the forward pass computes at once: one for each thread if the
  // blocks of an image fit into half of L2. A larger image has enough chunks for all threads.
  Index forward_images() const {
    return fits_beside(part * plane * kChannelBlock) ? std::min<Index>(z.n, threads) : 1;
  }
  // Tells whether the floats fit into half of L2.
  static bool fits_beside(Index floats) {
    return floats <= static_cast<Index>(cache_sizes().l2 / sizeof(float) / 2);
  }

  static constexpr Index kChunkPixels = 56;
  static constexpr Index kStripPixels = 224;

  const DeformConv2dProblem& z;
  bool in_nchw16c;
  Index taps, pixels, plane;
  Index kernels, padded;  // output channels of a group, and in whole blocks
  Index lanes, tile = 0;  // of a vector; pixels of a tile
  int threads;
  std::vector<Block> blocks;
  Index part = 1;              // blocks
  Index chunk = 1, strip = 1;  // pixels
  Index weight_part = 1;       // backward_weight: blocks of a task
  Index kernel_parts = 1;      // and the tasks that share them

 private:
  void cut(Direction direction) {
    if (direction == Direction::backward_weight) {
      weight_part = std::min<Index>(2, group_blocks());
      if (z.groups * ceil_div(group_blocks(), weight_part) < 2 * threads) weight_part = 1;
      const Index tasks = z.groups * ceil_div(group_blocks(), weight_part);
      const Index most = ceil_div(padded, 2 * lanes);
      kernel_parts = threads == 1 ? 1 : std::clamp<Index>(ceil_div(2 * threads, tasks), 1, most);
      return;
    }
    // The panel takes a third of L2. Copies of x and dx may take a twentieth of the size of x and
    // y, or two blocks if two blocks are larger.
    const auto l2 = static_cast<Index>(cache_sizes().l2 / sizeof(float));
    Index most = std::max<Index>(1, l2 / 3 / (kChunkPixels * taps * kChannelBlock));
    if (direction == Direction::backward_data) most = kDataPart;
    if (!in_nchw16c) {
      const Index floats = z.n * (z.c * plane + z.k * pixels);
      const Index copies = direction == Direction::backward_data ? 2 : 1;
      const Index room = floats / 20 / (copies * plane * kChannelBlock);
      most = std::clamp<Index>(room, std::min<Index>(most, 2), most);
    }
    part = ceil_div(group_blocks(), ceil_div(group_blocks(), most));
  }

  static constexpr Index kDataPart = 8;
};

// ---- what all directions share: places, panels of samples, register tiles -----------------------

// Cuts a workspace into arrays; each array begins at a cache line. Without memory the object only
// counts bytes.
class Pieces {
 public:
  explicit Pieces(void* memory = nullptr) : memory_(static_cast<std::byte*>(memory)) {}
  float* floats(Index count) {
    const std::size_t at = bytes_;
    bytes_ += ScratchArena::round_up(static_cast<std::size_t>(count) * sizeof(float));
    return memory_ == nullptr ? nullptr : reinterpret_cast<float*>(memory_ + at);
  }
  // Separates arrays of two threads by a page. The prefetcher of a core reads to the end of a page
  // and would take cache lines away from the other core.
  void gap() { bytes_ += 4096; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* memory_;
  std::size_t bytes_ = 0;
};

// Images that are computed at the same time, each in a separate set of buffers. Loops over these
// images run on one thread or on all threads.
class Images {
 public:
  Images(Index first, Index count) : first_(first), count_(count) {}
  Images(Index image, int thread) : first_(image), count_(1), set_(thread), thread_(thread) {}

  Index first() const { return first_; }
  // Calls body(image, set, i, thread) for each image and each i below `parts`.
  template <class Body>
  void loop(Index parts, const Body& body) const {
    const auto one = [&](Index task, int thread) {
      const Index image = task / parts;
      body(first_ + image, static_cast<std::size_t>(set_ + image), task % parts, thread);
    };
    if (thread_ == kAll) return parallel_chunks(count_ * parts, one);
    for (Index i = 0; i < parts; ++i) one(i, thread_);
  }

 private:
  static constexpr int kAll = -1;
  Index first_, count_;
  Index set_ = 0;
  int thread_ = kAll;
};

// Calls run(images) until all images of the problem are done. If each thread has a set of buffers,
// each thread takes whole images, and all threads share the remaining images. If there are fewer
// sets, all threads share every image. No sum spans several images, so the bits do not depend on
// the number of sets.
template <class Run>
void for_images(const DeformTiling& plan, Index sets, const Run& run) {
  const Index alone = sets == plan.threads ? plan.z.n / sets * sets : 0;
  parallel_chunks(alone, [&](Index image, int thread) { run(Images(image, thread)); });
  for (Index n = alone; n < plan.z.n; n += sets) run(Images(n, std::min(sets, plan.z.n - n)));
}

// The offsets and mask of a call. Computes from them the sampling positions (places) in x of each
// pixel of y.
class Places {
 public:
  Places(const DeformTiling& plan, const void* offset, const void* mask)
      : plan_(plan),
        offset_(static_cast<const float*>(offset)),
        mask_(static_cast<const float*>(mask)) {}

  // Computes all taps of an offset group for pixels [first, first + count) of image n, to [taps,
  // rows].
  void compute(Index n, Index group, Index first, Index count, float* to) const;

 private:
  const DeformTiling& plan_;
  const float *const offset_, *const mask_;
};

DeformPlaces places_at(const DeformTiling& plan, float* all, Index tap);

// Fills a panel [pixels, plan.panel_row()] with samples of blocks [begin, end) of group g. x points
// to the first of these blocks; x_block is the distance of two blocks in floats. `places` holds the
// offset groups of the blocks one after the other.
void fill_panel(const DeformTiling& plan, Index g, Index begin, Index end, Index pixels,
                const float* x, Index x_block, float* places, float* panel);

// The arguments of a product: out[j, lane] = start + residual + sum over d < depth of
// in[j in_step + d] w[d, lane], for `pixels` rows j. Sums are cut into chains of kSumChain terms,
// as in Nchw16cTiles. If in_block is 16, a row of `in` is contiguous.
struct Sums {
  Index pixels, depth;
  const float* in;
  Index in_block, in_step;
  const float* w;  // [depth in whole blocks, width] for each tile of lanes
  Index lanes;     // the number of lanes of `out`: a multiple of 16
  float* out;
  Index out_block;  // distance in `out` from one block of 16 lanes to the next
  Index out_step = kChannelBlock;
  const float* start = nullptr;  // [starts], or null
  Index starts = 0;
  bool add = false;  // to the values in out
};
void sum_tiles(const DeformTiling& plan, const Sums& sums);

// ---- the backward directions --------------------------------------------------------------------

std::size_t data_bytes(const DeformConv2dProblem& problem);  // of workspace
std::size_t data_prepared_bytes(const DeformConv2dProblem& problem);
void prepare_data_weights(const PrepareArgs<DeformConv2dProblem>& args);
void fused_backward_data(const DeformConv2dBackwardDataArgs& args);

std::size_t weight_bytes(const DeformConv2dProblem& problem);
void fused_backward_weight(const DeformConv2dBackwardWeightArgs& args);

}  // namespace convscope::deform
