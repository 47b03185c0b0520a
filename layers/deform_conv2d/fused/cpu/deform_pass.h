// SPDX-License-Identifier: Apache-2.0
// deform_pass.h: code that the three directions of fused deformable convolution share: places of a
// run of pixels, panels of samples, and register tiles of accumulators.
#pragma once

#include "layers/deform_conv2d/algorithm.h"
#include "layers/deform_conv2d/fused/cpu/deform_plan.h"

namespace convscope::deform {

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

}  // namespace convscope::deform
