// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_instances.cuh: the compiled kernels of implicit_gemm_tiles.cuh, by kind of factors.
// They are spread over four files because each takes a while to compile.
// Read next  implicit_gemm_tiles.cuh
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

#include "layers/conv2d/implicit_gemm/cuda/implicit_gemm_tiles.cuh"

namespace convscope::implicit_gemm {

inline constexpr std::size_t kMostStages = 5;

// What one multiprocessor takes, microseconds of one H200: `step` for each step of a tile, `around`
// for its beginning and end.
struct TileTime {
  double step = 1, around = 1;
};

struct Instance {
  int rows, columns;  // of a block's tile
  unsigned threads;
  std::size_t shared_bytes;  // of gather; backward_weight has rows of the depth behind it
  int blocks;                // that share a multiprocessor
  TileTime gather_us, weight_us;
  void (*gather)(const Gather);
  void (*weight)(const WeightGather);  // null: the tile's columns do not divide the threads

  std::size_t weight_bytes() const {
    return shared_bytes + (kMostStages + 1) * kBlockDepth * sizeof(DepthRow);
  }
};

template <class V>
inline Instance instance(TileTime gather_us, TileTime weight_us) {
  Instance out{V::kTileRows, V::kTileColumns, V::kThreads,      V::kSharedBytes, V::kBlocks,
               gather_us,    weight_us,       gather_kernel<V>, nullptr};
  if constexpr (V::kThreads % (V::kTileColumns / kPieceHalves) == 0) out.weight = weight_kernel<V>;
  return out;
}

// Microseconds of one H200: the pass that sums parts, and what is stored in one: two neighbours at
// once, one at a time, outputs of a phase, which lie apart, and weights, which look for their tap.
inline constexpr double kPartsUs = 1.7, kPartBytesPerUs = 2.5e6;
inline constexpr double kPairedPerUs = 2.5e6, kSinglePerUs = 0.37e6, kScatteredPerUs = 0.33e6;
inline constexpr double kWeightPerUs = 0.17e6;
inline double stored_us(std::int64_t outputs, int phases, bool paired) {
  return static_cast<double>(outputs) / (phases > 1 ? kScatteredPerUs
                                         : paired   ? kPairedPerUs
                                                    : kSinglePerUs);
}

// Tiles, their steps together, and those of the longest tile.
struct Grid {
  double tiles = 1, steps = 1;
  int longest = 1;
};
// By the blocks that can share a multiprocessor: as many steps at full speed take as long as one of
// a block of `gather` that is alone there and waits for its own loads.
inline constexpr double kAloneSteps[] = {1, 1, 1.4, 1.75};

// Whole waves of blocks, then the rest, which lasts as long as its fullest multiprocessor or its
// longest tile. A step takes `alone` steps at least.
inline double grid_us(const Instance& by, const TileTime& tile, double alone, const Grid& grid,
                      int parts) {
  const int processors = cuda_device_facts().multiprocessors;
  const double each = std::ceil(grid.steps / grid.tiles / parts) * tile.step;
  const double at_once = processors * static_cast<double>(by.blocks);
  const double waves = std::floor(grid.tiles * parts / at_once);
  const double rest = grid.tiles * parts - waves * at_once;
  const double us = waves * (tile.around + by.blocks * each);
  if (rest == 0) return us;
  const double longest = std::ceil(static_cast<double>(grid.longest) / parts) * tile.step * alone;
  return us + tile.around + std::max(std::max(std::ceil(rest / processors), alone) * each, longest);
}

std::span<const Instance> f32_instances();   // three products of halves
std::span<const Instance> tf32_instances();  // one product of halves with 10 bits of mantissa
std::span<const Instance> f16_instances();
std::span<const Instance> bf16_instances();

}  // namespace convscope::implicit_gemm
