// SPDX-License-Identifier: Apache-2.0
// depthwise_tiling_test.cpp: tests the index arithmetic of the GPU tilings of depthwise planes,
// without a GPU.
#include "layers/conv2d/depthwise/cuda/depthwise_tiling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "framework/check.h"

namespace convscope {
namespace {

struct Case {
  int h, w, p, q, size, stride, pad;
  int channels;
  std::string text() const {
    return cat("h=", h, " w=", w, " size=", size, " stride=", stride, " channels=", channels);
  }
};

DepthwiseTilingWish forward_wish(const Case& z, std::int64_t wanted_tiles) {
  return {.in_h = z.h,
          .in_w = z.w,
          .out_h = z.p,
          .out_w = z.q,
          .shift = z.pad,
          .in_origin = -z.pad,
          .out_origin = 0,
          .in_strip = 7 * z.stride,
          .out_strip = 7,
          .in_extra = z.size - z.stride,
          .group_step = 4 * z.stride,
          .window = (3 * z.stride + z.size + 3) / 4 * 4,
          .channels = z.channels,
          .wanted_tiles = wanted_tiles,
          .staged = true,
          .shared_bytes = 227 * 1024};
}

constexpr int kImages = 2;
const Case kCases[] = {
    {7, 7, 7, 7, 3, 1, 1, 1024},     {14, 14, 14, 14, 5, 1, 2, 96},  {28, 28, 28, 28, 3, 1, 1, 33},
    {112, 112, 56, 56, 3, 2, 1, 10}, {56, 56, 56, 56, 7, 1, 3, 5},   {1, 1, 1, 1, 3, 1, 1, 4},
    {61, 113, 61, 113, 3, 1, 1, 2},  {300, 40, 150, 20, 5, 2, 2, 3}, {9, 2000, 9, 2000, 7, 1, 3, 2},
};

TEST(DepthwiseTiling, EveryTargetIsOneThreadsOwn) {
  for (const Case& z : kCases) {
    for (const std::int64_t wanted : {1, 1000}) {
      SCOPED_TRACE(z.text());
      const DepthwiseTiling t = make_depthwise_tiling(forward_wish(z, wanted));
      ASSERT_GT(t.planes, 0);
      EXPECT_LE(t.threads(), DepthwiseTiling::kThreads);
      EXPECT_TRUE(t.planes == 1 || t.bands == 1);
      EXPECT_TRUE(t.planes == 1 || t.items() <= DepthwiseTiling::kThreads);
      std::vector<int> owners(static_cast<std::size_t>(kImages * z.channels * z.p * z.q));
      for (int at = 0; at < kImages * t.chunks(z.channels) * t.bands; ++at) {
        const DepthwiseJob job =
            depthwise_job(t, at / (t.chunks(z.channels) * t.bands),
                          at / t.bands % t.chunks(z.channels), at % t.bands, z.channels);
        for (int index = 0; index < t.items(); ++index) {
          const DepthwiseItem item = depthwise_item(t, index);
          if (item.plane >= job.planes) continue;
          for (int o = 0; o < t.out_strip; ++o) {
            const int row = job.out_row + item.strip * t.out_strip + o;
            for (int column = 4 * item.group; column < 4 * item.group + 4; ++column) {
              if (row >= z.p || column >= z.q) continue;
              ++owners[static_cast<std::size_t>(
                  ((static_cast<int>(job.plane) + item.plane) * z.p + row) * z.q + column)];
            }
          }
        }
      }
      for (const int count : owners) ASSERT_EQ(count, 1);
    }
  }
}

TEST(DepthwiseTiling, ATileHoldsAllThatItsThreadsRead) {
  for (const Case& z : kCases) {
    SCOPED_TRACE(z.text());
    const DepthwiseTiling t = make_depthwise_tiling(forward_wish(z, 1));
    // Threads of the last rows and columns read nothing beyond the end of the tile.
    EXPECT_LE((t.strips - 1) * t.in_strip + 6 * z.stride + z.size, t.rows);
    EXPECT_LE(4 * z.stride * (t.groups - 1) + 3 * z.stride + z.size, t.pitch);
    EXPECT_EQ(t.pitch % 4, 0);
    EXPECT_LE((t.tile_floats() + t.staged_floats()) * 4, 227 * 1024);
    // A tile begins with the row of x that the first tap of its first output row reads.
    for (int band = 0; band < t.bands; ++band) {
      const DepthwiseJob job = depthwise_job(t, 0, 0, band, z.channels);
      EXPECT_EQ(job.in_row, job.out_row * z.stride - z.pad);
    }
  }
}

TEST(DepthwiseTiling, ARowTooLongForSharedMemoryIsRefused) {
  EXPECT_EQ(make_depthwise_tiling(forward_wish({9, 9000, 9, 9000, 3, 1, 1, 1}, 1)).planes, 0);
}

TEST(DepthwiseTiling, FewPlanesAreCutSmallerForManyMultiprocessors) {
  const Case z{28, 28, 28, 28, 3, 1, 1, 256};
  const auto tiles = [&](std::int64_t wanted) {
    const DepthwiseTiling t = make_depthwise_tiling(forward_wish(z, wanted));
    return t.chunks(z.channels) * t.bands;
  };
  const int few = tiles(1);
  const int many = tiles(500);
  EXPECT_LT(few, many);
  EXPECT_GE(many, 500);
}

}  // namespace
}  // namespace convscope
