// SPDX-License-Identifier: Apache-2.0
// shape_test.cpp: shapes: counts, strides, comparisons, refusals.
#include "framework/shape.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace convscope {
namespace {

TEST(Shape, CountsElementsAndStrides) {
  const Shape shape{2, 3, 4};
  EXPECT_EQ(shape.rank(), 3);
  EXPECT_EQ(shape.numel(), 24);
  EXPECT_EQ(shape.stride(0), 12);
  EXPECT_EQ(shape.stride(2), 1);
  EXPECT_EQ(shape.at(-1), 4);
  EXPECT_EQ(shape.str(), "[2,3,4]");
  EXPECT_EQ(Shape{}.numel(), 1);
  EXPECT_EQ((Shape{5, 0, 2}).numel(), 0);
}

TEST(Shape, ComparesSizesAndRank) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_FALSE((Shape{2, 3}) == (Shape{2, 3, 1}));
  EXPECT_FALSE((Shape{2, 3}) == (Shape{3, 2}));
}

TEST(Shape, RefusesWhatCannotBe) {
  EXPECT_ERROR(ErrorKind::kInvalid, "expected sizes of at least 0, got -1", (Shape{2, -1}));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected at most 6 axes", (Shape{1, 1, 1, 1, 1, 1, 1}));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected an axis in [-2,2) of [2,3], got 2",
               (Shape{2, 3}).at(2));
  EXPECT_ERROR(ErrorKind::kInvalid, "fewer than 2^63 elements",
               (Shape{std::int64_t{1} << 32, std::int64_t{1} << 32}).numel());
}

}  // namespace
}  // namespace convscope
