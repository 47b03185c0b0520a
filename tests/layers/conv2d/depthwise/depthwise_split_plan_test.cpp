// SPDX-License-Identifier: Apache-2.0
// depthwise_split_plan_test.cpp: tests the index arithmetic of the GPU tilings of large depthwise
// kernels with strides and few planes, without a GPU.
#include "layers/conv2d/depthwise/cuda/depthwise_split_plan.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "framework/check.h"

namespace convscope {
namespace {

using depthwise::counts_of;
using depthwise::LargeSizes;
using depthwise::Line;
using depthwise::make_split_plan;
using depthwise::SplitPlan;

LargeSizes sizes(Direction direction, int planes, int h, int w, int r, int s, int stride, int pad) {
  return {.direction = direction,
          .n = 1,
          .c = planes,
          .h = h,
          .w = w,
          .p = (h + 2 * pad - r) / stride + 1,
          .q = (w + 2 * pad - s) / stride + 1,
          .r = r,
          .s = s,
          .stride_h = stride,
          .stride_w = stride,
          .pad_top = pad,
          .pad_left = pad,
          .shared_bytes = 227 * 1024,
          .multiprocessors = 132};
}

std::vector<LargeSizes> many_sizes() {
  std::vector<LargeSizes> out;
  for (const Direction direction : {Direction::forward, Direction::backward_data}) {
    for (const int stride : {1, 2}) {
      for (const int planes : {1, 64, 4096}) {
        out.push_back(sizes(direction, planes, 56, 56, 9, 9, stride, 4));
        out.push_back(sizes(direction, planes, 15, 17, 21, 13, stride, 10));
        out.push_back(sizes(direction, planes, 30, 11, 5, 8, stride, 0));
        out.push_back(sizes(direction, planes, 200, 140, 31, 31, stride, 15));
        out.push_back(sizes(direction, planes, 9, 20, 63, 1, stride, 31));
      }
    }
  }
  return out;
}

std::string name(const LargeSizes& z) {
  return cat(z.direction == Direction::forward ? "forward " : "backward ", z.c, " planes ", z.h,
             "x", z.w, " under ", z.r, "x", z.s, " stride ", z.stride_h, " pad ", z.pad_top);
}

TEST(DepthwiseSplitPlan, EachRowOfTheTargetHasOneThreadForEachPartAndGroup) {
  for (const LargeSizes& z : many_sizes()) {
    const SplitPlan t = make_split_plan(z);
    ASSERT_GT(t.band, 0) << name(z);
    EXPECT_LE(t.threads(), SplitPlan::kMaxThreads) << name(z);
    EXPECT_LE(t.shared_floats() * 4, z.shared_bytes) << name(z);
    std::set<int> rows;  // of the target in memory
    for (int a = 0; a < t.classes; ++a) {
      const Line& line = t.rows.lines[a];
      for (int p = 0; p < t.bands * t.band && p < line.outs; ++p) {
        EXPECT_TRUE(rows.insert(p * t.rows.out_step + line.out_first).second) << name(z);
      }
    }
    EXPECT_EQ(static_cast<int>(rows.size()), t.out_h) << name(z);
  }
}

TEST(DepthwiseSplitPlan, RowsMeetAsInTheFormulaAndLieInTheTile) {
  for (const LargeSizes& z : many_sizes()) {
    const SplitPlan t = make_split_plan(z);
    const bool back = z.direction == Direction::backward_data;
    std::int64_t met = 0, expected = 0;
    for (int band = 0; band < t.bands; ++band) {
      for (int a = 0; a < t.classes; ++a) {
        const Line& line = t.rows.lines[a];
        for (int p = band * t.band; p < std::min((band + 1) * t.band, line.outs); ++p) {
          for (int k = 0; k < line.taps; ++k) {
            const int source = p * t.row_step + line.start + k;
            if (source < 0 || source >= t.in_h) continue;
            ++met;
            EXPECT_GE(source, t.first_row(band)) << name(z);
            EXPECT_LT(source, t.first_row(band) + t.tile_rows) << name(z);
            // The kernel's row in memory.
            const int r =
                back ? (line.taps - 1 - k) * z.stride_h + (line.out_first + z.pad_top) % z.stride_h
                     : k;
            const int target = p * t.rows.out_step + line.out_first;
            const int x = back ? target : source, y = back ? source : target;
            EXPECT_EQ(x, y * z.stride_h - z.pad_top + r) << name(z);
          }
        }
      }
    }
    for (int p = 0; p < z.p; ++p) {
      for (int r = 0; r < z.r; ++r) {
        const int h = p * z.stride_h - z.pad_top + r;
        expected += h >= 0 && h < z.h;
      }
    }
    EXPECT_EQ(met, expected) << name(z);
  }
}

TEST(DepthwiseSplitPlan, GroupsReadInsideTheTile) {
  for (const LargeSizes& z : many_sizes()) {
    const SplitPlan t = make_split_plan(z);
    for (int e = 0; e < t.entries; ++e) {
      const int last_taps = (t.columns.lines[e].taps - 1) / 4 * 4;
      EXPECT_LE(4 * (t.groups - 1) + last_taps + 8, t.pitch) << name(z);
      EXPECT_LE(t.columns.lines[e].outs, 4 * t.groups) << name(z);
      EXPECT_LE(t.columns.lines[e].taps, t.tap_pitch) << name(z);
    }
    EXPECT_EQ(t.pitch % 8, 4) << name(z);  // neighbouring rows begin in other banks
  }
}

TEST(DepthwiseSplitPlan, FewPlanesAreSplitOverMoreThreads) {
  EXPECT_EQ(make_split_plan(sizes(Direction::forward, 64, 56, 56, 9, 9, 2, 4)).parts, 3);
  EXPECT_EQ(make_split_plan(sizes(Direction::forward, 64, 56, 56, 21, 21, 2, 10)).parts, 4);
  EXPECT_EQ(make_split_plan(sizes(Direction::forward, 4096, 56, 56, 21, 21, 2, 10)).parts, 1);
}

TEST(DepthwiseSplitPlan, RowsThatAreTooLongForABlockAreRefused) {
  EXPECT_EQ(make_split_plan(sizes(Direction::forward, 1, 9, 3000, 9, 9, 1, 4)).band, 0);
}

TEST(DepthwiseSplitPlan, CountsOfASmallProblemAreThoseByHand) {
  // 6x8 under 5x3 with padding 2 along rows and 1 along columns: y is 6x8.
  LargeSizes z = sizes(Direction::forward, 7, 6, 8, 5, 3, 1, 2);
  z.pad_left = 1;
  z.q = 8;
  const SplitPlan t = make_split_plan(z);
  ASSERT_EQ(t.groups, 2);
  ASSERT_EQ(t.parts, 2);
  ASSERT_EQ(t.bands, 1);
  const Cost cost = counts_of(t, z);
  EXPECT_EQ(cost.flops, 2.0 * 7 * 6 * 8 * 5 * 3);
  EXPECT_EQ(cost.bytes, 4.0 * (7 * 2 * 6 * 8 + 7 * 5 * 3));
  // The 6 rows of y meet 3, 4, 5, 5, 4 and 3 rows of x. A row of taps takes one chunk of 4.
  EXPECT_EQ(cost.issued, 2.0 * 7 * 24 * 8 * 4);
  EXPECT_EQ(cost.blocks, 7);
  EXPECT_EQ(cost.cached, 7.0 * (6 * 8 + 5 * 3) * 4);
  EXPECT_EQ(cost.chain, 3);   // two threads share 5 rows of taps
  EXPECT_EQ(cost.copies, 2);  // 63 elements, 32 threads
  EXPECT_EQ(cost.stored, 7.0 * 6 * 8);
}

}  // namespace
}  // namespace convscope
