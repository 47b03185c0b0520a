// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_tma_plan.h: tiles, patches and parts of a problem: the cheapest by a small model of
// the time. It needs no CUDA, so tests check it on the CPU.
// Read next  implicit_gemm_tma_taps.h
#pragma once

#include <cstddef>
#include <cstdint>

#include "framework/export.h"
#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_taps.h"

namespace convscope::implicit_gemm_tma {

// A kernel of forward and backward_data: rows x columns of a tile, blocks of an SM, and channels of
// a pixel that are loaded together. With few channels, shorter rows load less padding.
struct GatherShape {
  int rows, columns, blocks, chunk;
};
inline constexpr GatherShape kGatherShapes[] = {
    {256, 128, 1, 64}, {128, 256, 1, 64}, {256, 64, 1, 64},  {128, 128, 1, 64}, {128, 64, 2, 64},
    {256, 16, 1, 64},  {256, 64, 1, 16},  {256, 128, 1, 32}, {256, 64, 1, 32},
};
inline constexpr int kGatherShapeCount = 9;

// Kernels for f32 as high and low parts, with two planes of everything.
inline constexpr GatherShape kHalvesShapes[] = {
    {256, 64, 1, 64}, {256, 32, 1, 64}, {256, 64, 1, 32}, {256, 32, 1, 32}};
inline constexpr int kHalvesShapeCount = 4;

inline constexpr int kMaxStages = 64;  // of patches, and of weights

// Returns a 1x1 problem without stride and padding as one row of all pixels of all images: it reads
// no neighbours, and tiles cut the row without a remainder.
CONVSCOPE_API Conv2dProblem as_one_line(const Conv2dProblem& problem);

struct Machine {
  int multiprocessors = 132;
  int shared_bytes = 227 * 1024;  // of a block
};

struct GatherPlan {
  int shape = 0;   // of kGatherShapes; two planes: of kHalvesShapes
  int planes = 1;  // 2: high and low parts, three products
  Sharing sharing = Sharing::tap;
  bool from_f32 = false;                  // reads f32 images directly, not as fp16
  int width = 1, height = 1, images = 1;  // outputs of a tile
  int pitch = 1, lines = 1;               // pixels of an image row in a patch; rows between images
  int patch_w = 1, patch_h = 1;
  bool zeros_behind = false;  // the rows after a patch are read as zeros (pitch_of)
  int patch_stage_bytes = 0, patch_stages = 2, weight_stages = 2;
  bool weights_stay = false;  // all of them stay in shared memory
  int splits = 1;
  int row_tiles = 0, column_tiles = 0;  // of all phases; of the channels
  std::size_t shared_bytes = 0;
  double us = 0, launch_us = 0;  // estimates of all, and of the launches
  double algorithm_us = 0;       // the estimate for the algorithm's cost: see AlgorithmRates
  TapSets taps;                  // tiles are filled in
};
CONVSCOPE_API GatherPlan plan_gather(const Conv2dProblem& problem, Direction direction,
                                     const Machine& machine, bool from_f32 = false);

// Plans f32 in full precision, as high and low parts. The reduction is not split.
CONVSCOPE_API GatherPlan plan_halves(const Conv2dProblem& problem, Direction direction,
                                     const Machine& machine);
inline const GatherShape& shape_of(const GatherPlan& plan) {
  return plan.planes == 2 ? kHalvesShapes[plan.shape] : kGatherShapes[plan.shape];
}

// A kernel of backward_weight: input channels of a slot (a row of its patch), slots of each of
// three warp groups, and cycles of a product of reduction length 16. Narrow ones wait for dy, which
// they read transposed.
struct WeightShape {
  int columns, slots, cycles;
};
inline constexpr WeightShape kWeightShapes[] = {{64, 3, 26}, {32, 5, 22}, {16, 6, 19}};

// Kernels for f32 as high and low parts, with twice the accumulators.
inline constexpr WeightShape kHalvesWeightShapes[] = {{64, 2, 26}, {32, 4, 22}, {16, 6, 19}};

constexpr int kSumFours = 1024;  // sums of four channels that a block of the last pass holds

struct WeightPlan {
  int shape = 0;   // of kWeightShapes; two planes: of kHalvesWeightShapes
  int planes = 1;  // 2: high and low parts, three products
  Sharing sharing = Sharing::tap;
  int width = 1, height = 1, images = 1;
  int pitch = 1, errors_w = 1, errors_h = 1, patch_w = 1, patch_h = 1;
  bool columns_apart = false;
  int depth = 16, k_blocks = 1, c_blocks = 1, tap_count = 1;
  int tiles_w = 1, tiles_h = 1, tiles_n = 1;
  int pixels_stage_bytes = 0, stage_bytes = 0, stages = 2, barriers_at = 0;
  int splits = 1;
  bool direct = false;  // no split: the blocks write dw themselves
  int store_pitch = 0;  // then: numbers of an output channel in shared memory
  int sum_width = 8;    // channels of one k that a block of the last pass sums
  std::size_t shared_bytes = 0;
  double us = 0, launch_us = 0;
  double algorithm_us = 0;
  TapSets taps;
};
CONVSCOPE_API WeightPlan plan_weight(const Conv2dProblem& problem, const Machine& machine);
// Plans f32 in full precision, as high and low parts.
CONVSCOPE_API WeightPlan plan_weight_halves(const Conv2dProblem& problem, const Machine& machine);
inline const WeightShape& shape_of(const WeightPlan& plan) {
  return plan.planes == 2 ? kHalvesWeightShapes[plan.shape] : kWeightShapes[plan.shape];
}

}  // namespace convscope::implicit_gemm_tma
