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

#include <array>

#include "framework/memory/memory.h"
#include "framework/ops/gemm/gemm_kernels.h"
#include "framework/parallel.h"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/shared/tiles.h"

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

// What the sums of all algorithms do with a run of pixels of one image. Tiling is a WeightBlocks
// with thread_floats(). The algorithms add which pixels are a run, and where its rows of x are.
template <class Tiling>
class WeightRuns {
 public:
  WeightRuns(const Tiling& plan, const Conv2dBackwardWeightArgs& args)
      : plan_(plan),
        z_(plan.z),
        kernels_(tile_kernels.get()),
        x_(static_cast<const float*>(args.x)),
        dy_(static_cast<const float*>(args.dy)),
        sums_(plan, args),
        scratch_(static_cast<float*>(args.workspace) + plan.sums_floats()) {}

 protected:
  // Calls sum(slice, block, sums, scratch) as WeightSums::run(), with the scratch of the thread.
  template <class Sum>
  void run_slices(const Sum& sum) const {
    sums_.run([&](std::int64_t slice, std::int64_t block, float* sums, int thread) {
      sum(slice, block, sums, scratch_ + thread * plan_.thread_floats());
    });
  }

  // Transposes dy of `pixels` pixels of image n, from pixel `first` on, to [pixels, width].
  void dy_to_lanes(std::int64_t n, std::int64_t block, std::int64_t first, std::int64_t pixels,
                   float* to) const {
    const std::int64_t plane = z_.p() * z_.q();
    channels_to_lanes(dy_ + (n * z_.k + plan_.first_kernel(block)) * plane + first, plane,
                      plan_.kernel_count(block), pixels, plan_.width, to);
  }

  // Runs tiles for `rows` rows of x. place(x, sums) returns those of the next row.
  template <class Place>
  void run_tiles(WeightTile& tile, std::int64_t rows, const Place& place) const {
    constexpr std::size_t kMaxRows = 16;  // of a tile, on any instruction set
    const RowTiles tiles(rows, kernels_.rows);
    std::array<const float*, kMaxRows> x;
    std::array<float*, kMaxRows> sums;
    tile.width = static_cast<int>(plan_.width);
    tile.x = x.data();
    tile.sums = sums.data();
    for (std::int64_t t = 0; t < tiles.tiles; ++t) {
      tile.taps = tiles.height(t);
      for (std::size_t i = 0; i < static_cast<std::size_t>(tile.taps); ++i) place(x[i], sums[i]);
      kernels_.weight_tile(tile);
    }
  }

  const Tiling& plan_;
  const Conv2dProblem& z_;
  const TileKernels kernels_;
  const float* const x_;
  const float* const dy_;

 private:
  const WeightSums sums_;
  float* const scratch_;
};

}  // namespace convscope
