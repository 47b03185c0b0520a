// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_tma_plan.h: chooses the tile shape, the patches and the split of a problem for
// which the cost model estimates the lowest time. The file needs no CUDA, so tests check it on the
// CPU.
// Read next  implicit_gemm_tma_taps.h
#pragma once

#include <cstddef>
#include <cstdint>

#include "framework/export.h"
#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_taps.h"
#include "layers/dispatch/cost/choose.h"

namespace convscope::implicit_gemm_tma {

// A kernel of forward and backward_data: rows x columns of a tile, blocks that share an SM, and the
// channels of a pixel that are loaded together. With few channels, short rows load less padding.
struct GatherShape {
  int rows, columns, blocks, chunk;
};
inline constexpr GatherShape kGatherShapes[] = {
    {256, 128, 1, 64}, {128, 256, 1, 64}, {256, 64, 1, 64},  {128, 128, 1, 64}, {128, 64, 2, 64},
    {256, 16, 1, 64},  {256, 64, 1, 16},  {256, 128, 1, 32}, {256, 64, 1, 32},
};
inline constexpr int kGatherShapeCount = 9;

// Kernels for f32 as high and low parts, with two planes of each operand.
inline constexpr GatherShape kFp16x3Shapes[] = {
    {256, 64, 1, 64}, {256, 32, 1, 64}, {256, 64, 1, 32}, {256, 32, 1, 32}};
inline constexpr int kFp16x3ShapeCount = 4;

inline constexpr int kMaxStages = 64;  // stages of patches, and stages of weights

// Returns a 1x1 problem without stride and padding as one row of all pixels of all images. The
// kernel reads no neighbouring pixels, so tiles cut the row without a remainder.
CONVSCOPE_API Conv2dProblem as_one_line(const Conv2dProblem& problem);

struct Machine {
  int multiprocessors = 132;
  int shared_bytes = 227 * 1024;  // of one block
};

struct GatherPlan {
  int shape = 0;   // index into kGatherShapes; two planes: kFp16x3Shapes
  int planes = 1;  // 2: high and low parts, three products
  Sharing sharing = Sharing::tap;
  bool from_f32 = false;                  // reads f32 images directly, not as fp16
  int width = 1, height = 1, images = 1;  // outputs of a tile
  int pitch = 1, lines = 1;               // pixels of an image row in a patch; rows between images
  int patch_w = 1, patch_h = 1;
  bool zeros_behind = false;  // the rows after a patch are read as zeros (pitch_of)
  int patch_stage_bytes = 0, patch_stages = 2, weight_stages = 2;
  bool weights_stay = false;  // all weights stay in shared memory
  int splits = 1;
  int row_tiles = 0, column_tiles = 0;  // row tiles of all phases; column tiles of the channels
  int most_splits = 1;                  // patches of the tile with the fewest
  std::size_t shared_bytes = 0;
  Cost cost = {};     // with the operands and the packed weights given
  TapSets taps = {};  // tiles are filled in
};
CONVSCOPE_API GatherPlan plan_gather(const Conv2dProblem& problem, Direction direction,
                                     const Machine& machine, bool from_f32 = false);

// Plans f32 in full precision, as high and low parts. The reduction is not split into parts.
CONVSCOPE_API GatherPlan plan_fp16x3(const Conv2dProblem& problem, Direction direction,
                                     const Machine& machine);
inline const GatherShape& shape_of(const GatherPlan& plan) {
  return plan.planes == 2 ? kFp16x3Shapes[plan.shape] : kGatherShapes[plan.shape];
}
// Returns the kernel for the cost model: its rows x columns x chunk. Kernels that read f32 are
// grouped by their columns. `strided`: TMA skips pixels, or results of a phase are not adjacent.
inline const char* schedule_of(const GatherPlan& plan, bool strided) {
  constexpr const char* kHalf[kGatherShapeCount] = {
      "half 256x128x64", "half 128x256x64", "half 256x64x64",  "half 128x128x64", "half 128x64x64",
      "half 256x16x64",  "half 256x64x16",  "half 256x128x32", "half 256x64x32"};
  constexpr const char* kPlanes[kFp16x3ShapeCount][2] = {{"256x64x64", "256x64x64 strided"},
                                                         {"256x32x64", "256x32x64 strided"},
                                                         {"256x64x32", "256x64x32 strided"},
                                                         {"256x32x32", "256x32x32 strided"}};
  if (plan.planes == 2) return kPlanes[plan.shape][strided ? 1 : 0];
  if (!plan.from_f32) return kHalf[plan.shape];
  const int columns = shape_of(plan).columns;
  return columns >= 128 ? "f32 wide" : columns == 64 ? "f32 64 columns" : "f32 16 columns";
}

// A kernel of backward_weight. A slot is a tap with `columns` input channels, one row of the patch;
// each of three warp groups has `slots` slots.
struct WeightShape {
  int columns, slots;
};
inline constexpr WeightShape kWeightShapes[] = {{64, 3}, {32, 5}, {16, 6}};

// Kernels for f32 as high and low parts, with twice the accumulators.
inline constexpr WeightShape kFp16x3WeightShapes[] = {{64, 2}, {32, 4}, {16, 6}};

constexpr int kSumFours = 1024;  // sums of four channels in a block of the last pass

struct TmaWeightTiling {
  int shape = 0;   // index into kWeightShapes; two planes: kFp16x3WeightShapes
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
  int store_pitch = 0;  // if direct: elements of an output channel in shared memory
  int sum_width = 8;    // input channels of one k that a block of the last pass sums
  std::size_t shared_bytes = 0;
  Cost cost = {};  // with the operands given
  TapSets taps = {};
};
CONVSCOPE_API TmaWeightTiling plan_weight(const Conv2dProblem& problem, const Machine& machine);
// Plans f32 in full precision, as high and low parts.
CONVSCOPE_API TmaWeightTiling plan_weight_fp16x3(const Conv2dProblem& problem,
                                                 const Machine& machine);
inline const WeightShape& shape_of(const TmaWeightTiling& plan) {
  return plan.planes == 2 ? kFp16x3WeightShapes[plan.shape] : kWeightShapes[plan.shape];
}
// Returns the kernel for the cost model: columns x slots, and what its blocks store: whole rows of
// dw, the elements of some of `taps` taps, or parts.
inline const char* schedule_of(const TmaWeightTiling& plan, int taps) {
  constexpr const char* kHalf[3][3] = {{"half 64x3", "half 64x3 some taps", "half 64x3 parts"},
                                       {"half 32x5", "half 32x5 some taps", "half 32x5 parts"},
                                       {"half 16x6", "half 16x6 some taps", "half 16x6 parts"}};
  constexpr const char* kPlanes[3][3] = {{"64x2", "64x2 some taps", "64x2 parts"},
                                         {"32x4", "32x4 some taps", "32x4 parts"},
                                         {"16x6", "16x6 some taps", "16x6 parts"}};
  const int stores = !plan.direct ? 2 : plan.tap_count < taps ? 1 : 0;
  return (plan.planes == 2 ? kPlanes : kHalf)[plan.shape][stores];
}

}  // namespace convscope::implicit_gemm_tma
