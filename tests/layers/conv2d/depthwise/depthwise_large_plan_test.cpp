// SPDX-License-Identifier: Apache-2.0
// depthwise_large_plan_test.cpp: tests the index arithmetic of the GPU tilings of depthwise
// convolutions with large kernels, without a GPU.
#include "layers/conv2d/depthwise/cuda/depthwise_large_plan.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "framework/check.h"

namespace convscope {
namespace {

using depthwise::Axis;
using depthwise::counts_of;
using depthwise::LargePlan;
using depthwise::LargeSizes;
using depthwise::Line;
using depthwise::make_axis;
using depthwise::make_large_plan;

struct Row {
  int in, taps, stride, pad_first, pad_last;
  int out() const { return (in + pad_first + pad_last - taps) / stride + 1; }
};

constexpr Row kRows[] = {{14, 9, 1, 4, 4},    {14, 9, 2, 4, 4},    {15, 13, 3, 6, 6},
                         {28, 31, 1, 15, 15}, {28, 31, 2, 15, 15}, {9, 5, 2, 0, 1},
                         {12, 9, 2, 0, 0},    {11, 7, 3, 12, 1},   {5, 1, 3, 0, 0},
                         {8, 2, 3, 1, 2},     {20, 10, 2, 3, 0}};

// For each result, the products (tap, source element) that its sum contains. The test lists them
// twice and compares: once from the `Line`s of the tiling, once from the indices with which the
// kernel addresses memory.
using Products = std::vector<std::multiset<std::pair<int, int>>>;

Products by_lines(const Axis& axis, int results) {
  Products out(static_cast<std::size_t>(results));
  for (int i = 0; i < axis.count; ++i) {
    const Line& line = axis.lines[i];
    for (int o = 0; o < line.outs; ++o) {
      for (int p = 0; p < line.taps; ++p) {
        const int source = line.start + o + p;
        if (source < 0 || source >= line.source_size) continue;
        // Finds the tap at position p of the line, which line_of_tap and `rotated` determine.
        int tap = -1;
        for (int t = 0; t < 200; ++t) {
          const int place = t / axis.tap_step;
          if (axis.line_of_tap[t % axis.tap_step] != (axis.tap_step == 1 ? 0 : i)) continue;
          if ((axis.rotated ? line.taps - 1 - place : place) == p) tap = t;
        }
        out[static_cast<std::size_t>(line.out_first + o * axis.out_step)].insert(
            {tap, line.source_first + source * axis.source_step});
      }
    }
  }
  return out;
}

TEST(DepthwiseLargePlan, LinesMakeTheProductsOfTheFormula) {
  for (const Row& z : kRows) {
    for (const Direction direction : kDirections) {
      SCOPED_TRACE(cat(name_of(direction), ": in ", z.in, ", taps ", z.taps, ", stride ", z.stride,
                       ", pad ", z.pad_first));
      const Axis axis = make_axis(direction, z.in, z.out(), z.taps, z.stride, z.pad_first);
      const int results = direction == Direction::forward         ? z.out()
                          : direction == Direction::backward_data ? z.in
                                                                  : z.taps;
      Products expected(static_cast<std::size_t>(results));
      for (int p = 0; p < z.out(); ++p) {
        for (int r = 0; r < z.taps; ++r) {
          const int h = p * z.stride + r - z.pad_first;
          if (h < 0 || h >= z.in) continue;
          if (direction == Direction::forward) expected[static_cast<std::size_t>(p)].insert({r, h});
          if (direction == Direction::backward_data) {
            expected[static_cast<std::size_t>(h)].insert({r, p});
          }
          if (direction == Direction::backward_weight) {
            expected[static_cast<std::size_t>(r)].insert({p, h});
          }
        }
      }
      EXPECT_TRUE(by_lines(axis, results) == expected);
    }
  }
}

TEST(DepthwiseLargePlan, EverySourceElementHasAPlaceInItsLine) {
  for (const Row& z : kRows) {
    for (const Direction direction : kDirections) {
      const Axis axis = make_axis(direction, z.in, z.out(), z.taps, z.stride, z.pad_first);
      const int elements = direction == Direction::backward_data ? z.out() : z.in;
      for (int i = 0; i < elements; ++i) {
        const int place = axis.by_source_step.divide(i);
        const int rest = i - place * axis.source_step;
        const Line& line = axis.lines[axis.source_step == 1 ? 0 : axis.line_of_source[rest]];
        EXPECT_EQ(line.source_first + place * axis.source_step, i);
        EXPECT_LT(place, line.source_size);
      }
    }
  }
}

// Every tiling that may be chosen: each search explores with another seed.
TEST(DepthwiseLargePlan, PlansFitTheDeviceAndCoverTheResult) {
  std::uint64_t seed = 0;
  for (const int side : {1, 7, 14, 28, 56, 113, 224}) {
    for (const int taps : {5, 9, 13, 31, 63}) {
      for (const int stride : {1, 2, 3}) {
        for (const int images : {1, 32}) {
          for (const Direction direction : kDirections) {
            LargeSizes z{.direction = direction,
                         .n = images,
                         .c = 24,
                         .h = side,
                         .w = side,
                         .r = taps,
                         .s = taps,
                         .stride_h = stride,
                         .stride_w = stride,
                         .pad_top = taps / 2,
                         .pad_left = taps / 2,
                         .shared_bytes = 227 * 1024,
                         .multiprocessors = 132};
            z.p = z.q = (side + 2 * z.pad_top - taps) / stride + 1;
            const ExploreSchedules explore(++seed);
            const LargePlan t = make_large_plan(z);
            SCOPED_TRACE(cat(name_of(direction), " of ", side, ", ", taps, " taps, stride ", stride,
                             ", ", images, " images"));
            ASSERT_GT(t.band, 0);
            const auto& tile = depthwise::kThreadTiles[t.tile];
            EXPECT_LE(depthwise::shared_floats_of(t, direction) * 4, z.shared_bytes);
            EXPECT_EQ(t.threads % 32, 0);
            EXPECT_LE(t.threads, LargePlan::kMaxThreads);
            EXPECT_GE(t.groups * tile.columns, t.columns.most_outs());
            EXPECT_EQ(t.pitch % tile.unit, 0);
            EXPECT_EQ(t.tap_pitch % 4, 0);
            EXPECT_GE(t.tap_pitch, t.columns.most_taps());
            if (direction == Direction::backward_weight) {
              EXPECT_GE(t.threads, t.items() * t.entries);
              EXPECT_GE(t.segments * t.segment, t.band);
              EXPECT_GE(t.bands * t.band, z.p);
              EXPECT_GE(t.strips * tile.rows, t.rows.most_outs());
            } else {
              EXPECT_GE(t.bands * t.band, t.rows.most_outs());
              EXPECT_EQ(t.band, t.strips * tile.rows);
            }
            for (int i = 0; i < t.columns.count; ++i) {
              const Line& line = t.columns.lines[i];
              EXPECT_EQ((line.left + line.start) % tile.unit, 0);
              EXPECT_GE(line.left + line.start, 0);
              // The last group of columns reads nothing beyond the end of a row in shared memory,
              // and the row has room for all source elements.
              EXPECT_LE(line.left + line.start + t.groups * tile.columns + line.taps, t.pitch);
              EXPECT_LE(line.left + line.source_size, t.pitch);
            }
          }
        }
      }
    }
  }
}

TEST(DepthwiseLargePlan, CountsOfASmallProblemAreThoseByHand) {
  const LargeSizes z{.direction = Direction::forward,
                     .n = 3,
                     .c = 5,
                     .h = 14,
                     .w = 14,
                     .p = 14,
                     .q = 14,
                     .r = 9,
                     .s = 9,
                     .pad_top = 4,
                     .pad_left = 4,
                     .shared_bytes = 227 * 1024,
                     .multiprocessors = 132};
  const LargePlan t = make_large_plan(z);
  const Cost cost = counts_of(t, z);
  EXPECT_EQ(cost.flops, 2.0 * 3 * 5 * 14 * 14 * 9 * 9);
  EXPECT_EQ(cost.bytes, 4.0 * (15 * 2 * 14 * 14 + 5 * 9 * 9));
  // A thread multiplies 9 rows of taps in three chunks of 4.
  const auto& tile = depthwise::kThreadTiles[t.tile];
  const double rounds = ceil_div(t.items(), t.threads);
  EXPECT_EQ(cost.blocks, ceil_div(15, t.slots) * t.bands);
  EXPECT_EQ(cost.issued, cost.blocks * t.threads * rounds * 2 * 9 * 12 * tile.rows * tile.columns);
  EXPECT_EQ(cost.chain, rounds * 3 * (9 + tile.rows - 1));
  EXPECT_EQ(cost.launches, 1);
}

TEST(DepthwiseLargePlan, SlicesOfTheBatchAreSummedByASecondKernel) {
  const LargeSizes z{.direction = Direction::backward_weight,
                     .n = 8192,
                     .c = 64,
                     .h = 14,
                     .w = 14,
                     .p = 14,
                     .q = 14,
                     .r = 9,
                     .s = 9,
                     .pad_top = 4,
                     .pad_left = 4,
                     .shared_bytes = 227 * 1024,
                     .multiprocessors = 132};
  const LargePlan t = make_large_plan(z);
  const Cost cost = counts_of(t, z);
  const double slices = ceil_div(132 * 6, 64);  // of 64 channels, 6 blocks for each SM
  EXPECT_EQ(cost.blocks, 64 * slices);
  EXPECT_EQ(cost.pass_bytes, 2 * 4 * slices * 64 * 9 * 9);
  EXPECT_EQ(cost.launches, 2);
}

}  // namespace
}  // namespace convscope
