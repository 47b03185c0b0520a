// SPDX-License-Identifier: Apache-2.0
// deform_cuda_plan_test.cpp: tests the summation order of deform_fused_cuda.cu, and the layout of
// its prepared weights.
#include "layers/deform_conv2d/fused/cuda/deform_cuda_plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <tuple>

#include "framework/check.h"

namespace convscope::deform_cuda {
namespace {

DeformShape sizes(std::int64_t c, std::int64_t k, std::int64_t groups, std::int64_t offset_groups,
                  std::int64_t kernel = 3) {
  const Conv2dProblem problem{.n = 2,
                              .c = c,
                              .h = 8,
                              .w = 9,
                              .k = k,
                              .r = kernel,
                              .s = kernel,
                              .pad_top = 1,
                              .pad_bottom = 1,
                              .pad_left = 1,
                              .pad_right = 1,
                              .groups = groups};
  return DeformShape(DeformConv2dProblem(problem, offset_groups, true));
}

TEST(DeformCudaPlan, ARunSharesBothGroups) {
  const DeformShape s = sizes(72, 24, 3, 4);  // 24 channels per weight group, 18 per offset group
  EXPECT_EQ(s.run, 6);
  EXPECT_EQ(s.group_runs, 4);
  EXPECT_EQ(s.offset_runs, 3);
  EXPECT_EQ(s.runs(), 12);
  for (int run = 0; run < s.runs(); ++run) {
    const int first = run * s.run, last = first + s.run - 1;
    EXPECT_EQ(first / 24, last / 24);
    EXPECT_EQ(first / 18, last / 18);
    EXPECT_EQ(s.offset_group_of_run(run), first / 18);
  }
}

TEST(DeformCudaPlan, TheForwardSumTakesEachPieceOnce) {
  for (const auto& [c, groups, offset_groups] :
       {std::tuple{3, 1, 1}, {64, 1, 1}, {72, 1, 1}, {128, 1, 2}, {72, 3, 4}, {512, 2, 1}}) {
    const DeformShape s = sizes(c, 8 * groups, groups, offset_groups);
    SCOPED_TRACE(cat(c, " channels, ", groups, " groups"));
    std::set<std::tuple<int, int, int>> seen;
    for (int i = 0; i < s.forward_depth(); ++i) {
      const ForwardPiece at = forward_piece(s, i);
      if (at.run >= s.group_runs) continue;  // filled up
      EXPECT_TRUE(at.tap >= 0 && at.tap < s.taps && at.piece >= 0 && at.piece < s.run_pieces);
      EXPECT_TRUE(seen.insert({at.tap, at.run, at.piece}).second) << i;
    }
    EXPECT_EQ(seen.size(), static_cast<std::size_t>(s.taps * s.group_pieces()));
    EXPECT_GE(s.run_pieces * kPieceNumbers, s.run);
    EXPECT_EQ(s.forward_depth() % (2 * kStepPieces), 0);
  }
}

// The code that samples the image loads s.unit neighbouring elements of the K dimension together.
// It relies on them having the same tap and the same run of channels.
TEST(DeformCudaPlan, AUnitReadsOnePlace) {
  const DeformShape s = sizes(72, 24, 3, 4);
  ASSERT_EQ(s.unit, 4);
  for (int i = 0; i < s.forward_depth(); ++i) {
    const ForwardPiece first = forward_piece(s, i / s.unit * s.unit), at = forward_piece(s, i);
    EXPECT_EQ(at.tap, first.tap);
    EXPECT_EQ(at.run, first.run);
    EXPECT_EQ(at.piece, first.piece + i % s.unit);
  }
}

TEST(DeformCudaPlan, TheSumOfDxTakesTapsOneByOne) {
  constexpr int kPieces = 3;
  BackwardPiece at{0, 5 % kPieces};
  at = {5 / kPieces, 5 % kPieces};
  for (int index = 5; index < 60; index += kStepPieces, at.advance(kPieces)) {
    EXPECT_EQ(at.tap, index / kPieces);
    EXPECT_EQ(at.piece, index % kPieces);
  }
}

TEST(DeformCudaPlan, PreparedWeightsHaveAPlaceForEachPiece) {
  constexpr int kBlocks = 2, kTiles = 2, kSteps = 3;
  std::set<std::int64_t> places;
  for (int block = 0; block < kBlocks; ++block) {
    for (int row = 0; row < kTiles * kWeightTileRows; ++row) {
      for (int depth = 0; depth < kSteps * kStepPieces; ++depth) {
        places.insert(weight_at(block, row, depth, kTiles, kSteps));
      }
    }
  }
  EXPECT_EQ(places.size(), kBlocks * kTiles * kSteps * kWeightTilePieces);
  EXPECT_EQ(*places.begin(), 0);
  EXPECT_EQ(*places.rbegin(), kBlocks * kTiles * kSteps * kWeightTilePieces - 1);
}

TEST(DeformCudaPlan, BoundsOfExponentsHold) {
  for (const float value : {1e-37f, 0.75f, 1.0f, 1.5f, 16384.0f, 3e38f}) {
    unsigned bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    EXPECT_LT(value, std::ldexp(1.0, bound_exponent(bits))) << value;
    EXPECT_GE(value, std::ldexp(1.0, bound_exponent(bits) - 1)) << value;
  }
  EXPECT_EQ(bound_exponent(0), 0);
  for (const unsigned count : {1u, 2u, 3u, 4u, 1000u, 1u << 30}) {
    EXPECT_LE(count, std::ldexp(1.0, count_exponent(count)));
    EXPECT_GT(2.0 * count, std::ldexp(1.0, count_exponent(count)));
  }
}

}  // namespace
}  // namespace convscope::deform_cuda
