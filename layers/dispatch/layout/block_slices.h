// SPDX-License-Identifier: Apache-2.0
// block_slices.h: the pixels of one block of 16 channels of images [N,C/16,H,W,16], cut into slices
// for several threads.
//
// Slices depend on the shape only, and their partial sums are added in a fixed order, so results
// have the same bits with any number of threads. With many blocks each thread processes whole
// blocks, which stay in its cache. With few blocks all threads work on the slices of one block.
#pragma once

#include <algorithm>
#include <cstdint>

#include "framework/parallel.h"
#include "framework/shape.h"
#include "layers/dispatch/activation_layout.h"

namespace convscope {

class BlockSlices {
 public:
  static constexpr int kLanes = static_cast<int>(kChannelBlock);
  static constexpr std::int64_t kMax = 256;  // slices of a block; their sums are on the stack

  explicit BlockSlices(const Shape& stored)
      : images_(stored[0]),
        blocks_(stored[1]),
        pixels_(stored[2] * stored[3]),
        slices_(std::clamp<std::int64_t>(ceil_div(rows(), kSliceRows), 1, kMax)) {}

  // Returns the pixels of all images: the number of values of one channel.
  std::int64_t rows() const { return images_ * pixels_; }
  // Returns the index of the first element of a block in the first image.
  std::int64_t first(std::int64_t block) const { return block * pixels_ * kChannelBlock; }

  // Calls body(block) for all blocks.
  template <class Body>
  void for_blocks(const Body& body) const {
    if (slices_ == 1 || blocks_ >= kManyBlocks) {
      return parallel_chunks(blocks_, [&](std::int64_t block, int) { body(block); });
    }
    for (std::int64_t block = 0; block < blocks_; ++block) body(block);
  }

  // Calls body(slice) for all slices of a block.
  std::int64_t slices() const { return slices_; }
  template <class Body>
  void for_slices(const Body& body) const {
    parallel_chunks(slices_, [&](std::int64_t slice, int) { body(slice); });
  }
  std::int64_t rows(std::int64_t slice) const { return begin(slice + 1) - begin(slice); }
  // Calls body(index of the first element, number of pixels) for each run of a slice. A run is a
  // part of one image, so its pixels are contiguous.
  template <class Body>
  void for_runs(std::int64_t block, std::int64_t slice, const Body& body) const {
    const std::int64_t end = begin(slice + 1);
    for (std::int64_t at = begin(slice); at < end;) {
      const std::int64_t image = at / pixels_, pixel = at % pixels_;
      const std::int64_t count = std::min(pixels_ - pixel, end - at);
      body(((image * blocks_ + block) * pixels_ + pixel) * kChannelBlock, count);
      at += count;
    }
  }
  // Calls body for all pixels of a block, last slices first. The last slices were read most
  // recently, so they are still in a cache that is smaller than the block.
  template <class Body>
  void for_runs(std::int64_t block, const Body& body) const {
    for_slices([&](std::int64_t slice) { for_runs(block, slices_ - 1 - slice, body); });
  }

  // Sets total[0 .. 16 kSums) to the sums that body(index of the first element, pixels, sums)
  // accumulates.
  template <int kSums, class Body>
  void sum(std::int64_t block, double* total, const Body& body) const {
    double parts[kMax][kSums * kLanes];
    for_slices([&](std::int64_t slice) {
      std::fill_n(parts[slice], kSums * kLanes, 0.0);
      for_runs(block, slice,
               [&](std::int64_t at, std::int64_t count) { body(at, count, parts[slice]); });
    });
    std::fill_n(total, kSums * kLanes, 0.0);
    for (std::int64_t slice = 0; slice < slices_; ++slice) {
      for (int i = 0; i < kSums * kLanes; ++i) total[i] += parts[slice][i];
    }
  }

 private:
  static constexpr std::int64_t kSliceRows = 1024;  // 64 KiB: the second read hits L2
  static constexpr std::int64_t kManyBlocks = 16;

  std::int64_t begin(std::int64_t slice) const { return slice * rows() / slices_; }

  std::int64_t images_, blocks_, pixels_, slices_;
};

}  // namespace convscope
