// SPDX-License-Identifier: Apache-2.0
// blas_cost_test.cpp: tests the tiles and counts of cuBLAS products (program test_layers).
#include "layers/conv2d/shared/cuda/blas_cost.h"

#include <gtest/gtest.h>

#include <string>

namespace convscope::blas_cost {
namespace {

constexpr int kSms = 132;

TEST(BlasCost, TilesShrinkUntilEachMultiprocessorHasOne) {
  const auto expect = [](const Products& z, std::int64_t rows, std::int64_t columns,
                         std::int64_t count) {
    const Tiles tiles = tiles_of(z, kSms);
    EXPECT_EQ(tiles.rows, rows);
    EXPECT_EQ(tiles.columns, columns);
    EXPECT_EQ(tiles.count, count);
    EXPECT_EQ(tiles.parts, 1);
  };
  expect({.m = 2048, .n = 2048, .k = 64}, 128, 128, 256);
  expect({.m = 1024, .n = 1024, .k = 64}, 64, 64, 256);  // 64 x 128 makes only 128 tiles
  expect({.m = 64, .n = 100000, .k = 64}, 64, 128, 782);
  expect({.m = 5, .n = 5, .k = 5, .batch = 36}, 32, 32, 36);  // a batch is not divided
}

TEST(BlasCost, OnlyALongSingleProductIsDividedAlongK) {
  const auto parts = [](std::int64_t k, std::int64_t batch) {
    return tiles_of({.m = 64, .n = 64, .k = k, .batch = batch}, kSms).parts;
  };
  EXPECT_EQ(parts(65536, 1), 32);
  EXPECT_EQ(parts(65536, 2), 1);
  EXPECT_EQ(parts(256, 1), 4);  // parts of at least 64 elements
  EXPECT_EQ(parts(127, 1), 1);
}

TEST(BlasCost, CountsIncludePaddingAndParts) {
  const Cost cost = counts_of({.m = 40, .n = 30, .k = 300}, Operands::f32, kSms, 3);
  // Tiles of 32 x 32: 2 x 1. Four parts of 75 elements, each padded to five steps of 16.
  EXPECT_EQ(cost.blocks, 8);
  EXPECT_EQ(cost.chain, 3 * 5);
  EXPECT_EQ(cost.issued, 3 * 8 * 2 * 32 * 32 * 80);
  EXPECT_EQ(cost.cached, 3 * 8 * (32 + 32) * 80 * 4);
  EXPECT_EQ(cost.pass_bytes, 3 * 2 * 4 * 4 * 40 * 30);
  EXPECT_EQ(cost.launches, 6);
  EXPECT_EQ(cost.resident, 16);
  EXPECT_FALSE(cost.tensor_cores);

  const Cost half = counts_of({.m = 40, .n = 30, .k = 300, .batch = 2}, Operands::half, kSms);
  EXPECT_EQ(half.blocks, 4);
  EXPECT_EQ(half.chain, 10);  // steps of 32
  EXPECT_EQ(half.launches, 1);
  EXPECT_EQ(half.pass_bytes, 0);
  EXPECT_TRUE(half.tensor_cores);
}

TEST(BlasCost, OneColumnIsPaddedToNoTile) {
  const Cost cost = counts_of({.m = 100, .n = 1, .k = 64}, Operands::tf32, kSms);
  EXPECT_EQ(cost.issued, 2 * 100 * 64);
  EXPECT_EQ(cost.cached, 4 * 64 * 101);
  EXPECT_EQ(cost.blocks, 13);
  EXPECT_EQ(std::string(cost.schedule), "vector");
  EXPECT_FALSE(cost.tensor_cores);
}

TEST(BlasCost, SchedulesSayTypeAndAlignmentOfRows) {
  const auto name = [](std::int64_t apart, Operands type) {
    return std::string(schedule_of({.m = 8, .n = 8, .k = 8, .apart = apart}, type));
  };
  EXPECT_EQ(name(49, Operands::f32), "f32");
  EXPECT_EQ(name(48, Operands::tf32), "tf32");
  EXPECT_EQ(name(12, Operands::tf32), "tf32 by 4");
  EXPECT_EQ(name(49, Operands::half), "half odd");
}

}  // namespace
}  // namespace convscope::blas_cost
