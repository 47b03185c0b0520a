// SPDX-License-Identifier: Apache-2.0
// weight_sums.h: how direct and pointwise convolution sum dw: output channels are in the lanes, and
// each slice of the batch has separate sums.
//
//   for each slice and block, in parallel   sums [C/G R S, width] = 0, then += the slice's images
//   for each block, in parallel             dw of its kernels = the sums of all slices, in order
//
// A block is up to `width` output channels of one group. A kernel has C/G R S weights. If dw
// accumulates, the sums of the first slice start from dw. Blocks and slices depend on the problem
// only, so dw has the same bits with any number of threads.
#pragma once

#include "framework/memory/memory.h"
#include "framework/parallel.h"
#include "layers/conv2d/algorithm.h"

namespace convscope {

// Returns the size of an array in scratch memory: `floats`, rounded up to whole cache lines.
inline std::int64_t piece_floats(std::int64_t floats) {
  const std::size_t bytes = static_cast<std::size_t>(floats) * sizeof(float);
  return static_cast<std::int64_t>(ScratchArena::round_up(bytes) / sizeof(float));
}

// The tiling of dw that all algorithms share. Each algorithm adds its own way to read x and dy, and
// the number of slices.
struct WeightBlocks {
  explicit WeightBlocks(const Conv2dProblem& problem);

  std::int64_t first_kernel(std::int64_t block) const {  // index among all K
    return block / blocks * kernels + block % blocks * width;
  }
  std::int64_t kernel_count(std::int64_t block) const {
    const std::int64_t rest = kernels - block % blocks * width;
    return rest < width ? rest : width;
  }
  // Returns a number of slices, at least `wanted` and at most one for each image. No slice adds
  // more than kSumChain totals to a sum, when each image contributes `totals`
  // (framework/simd/sum_chain.h).
  std::int64_t slices_for(std::int64_t wanted, std::int64_t totals) const;
  std::int64_t block_floats() const { return piece_floats(width * depth); }
  std::int64_t sums_floats() const { return slices * z.groups * blocks * block_floats(); }

  const Conv2dProblem& z;
  std::int64_t kernels, depth;  // K/G, C/G R S
  // Lanes of a vector; channels of a block (one vector or two); blocks of a group.
  std::int64_t lanes, width, blocks;
  std::int64_t slices = 1;  // of the batch, or of its runs of pixels
};

class WeightSums {
 public:
  // Uses the start of the workspace for the sums.
  WeightSums(const WeightBlocks& plan, const Conv2dBackwardWeightArgs& args);

  // Calls sum(slice, block, sums, thread), which adds the images of a slice to the sums of a block
  // [C/G R S, width], for all slices and blocks; then writes dw. `block` counts through all groups.
  template <class Sum>
  void run(const Sum& sum) const {
    const std::int64_t blocks = plan_.z.groups * plan_.blocks;
    parallel_chunks(blocks * plan_.slices, [&](std::int64_t chunk, int thread) {
      const std::int64_t slice = chunk / blocks;
      const std::int64_t block = chunk % blocks;
      sum(slice, block, begin(slice, block), thread);
    });
    parallel_chunks(blocks, [&](std::int64_t block, int) { write(block); });
  }

 private:
  float* at(std::int64_t slice, std::int64_t block) const {
    return sums_ + (slice * plan_.z.groups * plan_.blocks + block) * plan_.block_floats();
  }
  float* begin(std::int64_t slice, std::int64_t block) const;  // returns its sums
  void write(std::int64_t block) const;

  const WeightBlocks& plan_;
  float* const sums_;
  float* const dw_;
  const bool accumulate_;
};

}  // namespace convscope
