// SPDX-License-Identifier: Apache-2.0
// tensor_test.cpp: tensors: types, conversions, views, lifetimes, refusals.
#include "framework/tensor.h"

#include <gtest/gtest.h>

#include <limits>

#include "framework/memory/memory.h"
#include "tests/support/expect_error.h"

namespace convscope {
namespace {

constexpr DType kAll[] = {DType::f32, DType::f64, DType::f16, DType::bf16,
                          DType::i32, DType::i8,  DType::u8};

TEST(Tensor, EveryTypeIsFilledZeroedAndRead) {
  for (DType dtype : kAll) {
    const Tensor t = Tensor::full({2, 3}, 5, dtype);
    EXPECT_EQ(t.dtype(), dtype);
    EXPECT_EQ(t.size_bytes(), 6 * static_cast<std::int64_t>(size_of(dtype)));
    EXPECT_EQ(t.at(5), 5.0) << name_of(dtype);
    t.zero();
    EXPECT_EQ(t.at(0), 0.0) << name_of(dtype);
  }
  EXPECT_EQ(Tensor::full({}, 2.5).item(), 2.5);
  EXPECT_EQ(Tensor::empty({2, 3}, DType::i8).str(), "i8[2,3] cpu");
}

TEST(Tensor, ConvertsBetweenAllTypesAndSaturates) {
  for (DType from : kAll) {
    for (DType to : kAll) EXPECT_EQ(Tensor::full({3}, 7, from).to(to).at(2), 7.0);
  }
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::from({-300, 300, inf, nan, -1.75f}, {5});
  const Tensor small = x.to(DType::i8);
  EXPECT_EQ(small.at(0), -128);
  EXPECT_EQ(small.at(1), 127);
  EXPECT_EQ(small.at(2), 127);
  EXPECT_EQ(small.at(3), 0);
  EXPECT_EQ(small.at(4), -1);
  EXPECT_EQ(x.to(DType::i32).at(2), 2147483647.0);
}

TEST(Tensor, CopiesShareElementsAndClonesDoNot) {
  const Tensor a = Tensor::from({1, 2, 3}, {3});
  const Tensor b = a;
  const Tensor c = a.clone();
  a.data<float>()[0] = 9;
  EXPECT_EQ(b.at(0), 9);
  EXPECT_EQ(c.at(0), 1);
  EXPECT_TRUE(a.shares_memory_with(b));
  EXPECT_FALSE(a.shares_memory_with(c));
}

TEST(Tensor, ViewsLookAtTheSameElements) {
  const Tensor x = Tensor::from({0, 1, 2, 3, 4, 5}, {3, 2});
  EXPECT_EQ(x.reshape({2, -1}).shape(), (Shape{2, 3}));
  EXPECT_EQ(x.reshape({-1}).at(4), 4);
  const Tensor rows = x.slice_rows(1, 2);
  EXPECT_EQ(rows.shape(), (Shape{2, 2}));
  EXPECT_EQ(rows.at(0), 2);
  EXPECT_EQ(rows.slice_rows(1, 1).at(1), 5);
  rows.data<float>()[0] = 20;
  EXPECT_EQ(x.at(2), 20);
  EXPECT_EQ(x.slice_rows(3, 0).numel(), 0);
}

TEST(Tensor, BorrowsElementsThatItNeitherCountsNorFrees) {
  const std::int64_t held = memory_stats({}).live_bytes;
  float elements[] = {1, 2, 3, 4, 5, 6};
  {
    const Tensor tensor = Tensor::borrow(elements, {2, 3});
    EXPECT_EQ(tensor.raw_data(), elements);
    EXPECT_EQ(tensor.str(), "f32[2,3] cpu");
    const Tensor row = tensor.slice_rows(1, 1);
    row.fill(7);
    EXPECT_EQ(memory_stats({}).live_bytes, held);
  }
  EXPECT_EQ(memory_stats({}).live_bytes, held);
  EXPECT_EQ(elements[2], 3);
  EXPECT_EQ(elements[5], 7);
  EXPECT_EQ(Tensor::borrow(nullptr, {0, 3}).numel(), 0);
  EXPECT_ERROR(ErrorKind::kInvalid, "[tensor] expected elements of [1] to borrow",
               Tensor::borrow(nullptr, {1}));
}

TEST(Tensor, AViewKeepsTheElementsAlive) {
  Tensor view;
  {
    const Tensor x = Tensor::from({1, 2}, {2});
    view = x.slice_rows(1, 1);
  }
  EXPECT_EQ(view.item(), 2);
}

TEST(Tensor, RefusesWrongShapesTypesAndIndices) {
  const Tensor x = Tensor::zeros({2, 3});
  EXPECT_ERROR(ErrorKind::kInvalid, "expected a shape of 6 elements because x is [2,3], got [4]",
               x.reshape({4}));
  EXPECT_ERROR(ErrorKind::kInvalid, "at most one size of -1", x.reshape({-1, -1}));
  EXPECT_ERROR(ErrorKind::kInvalid, "to divide the 6 elements", x.reshape({-1, 4}));
  EXPECT_ERROR(ErrorKind::kInvalid, "to divide the 6 elements", x.reshape({-1, 0}));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected rows within [0,2), got [1,1+2)", x.slice_rows(1, 2));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected rows within", x.slice_rows(-1, 1));
  EXPECT_ERROR(ErrorKind::kInvalid, "a leading dimension", Tensor::zeros({}).slice_rows(0, 0));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected elements of type f64, got f32 [2,3]",
               x.data<double>());
  EXPECT_ERROR(ErrorKind::kInvalid, "expected an index below 6, got 6", x.at(6));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected a tensor of one element", x.item());
  EXPECT_ERROR(ErrorKind::kInvalid, "[copy] expected f32[2,3] cpu, got f32[3,2] cpu",
               x.copy_from(Tensor::zeros({3, 2})));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected a defined tensor", Tensor().raw_data());
  const std::vector<float> three(3);
  EXPECT_ERROR(ErrorKind::kInvalid, "expected as many values as [2,2] holds, got 3",
               Tensor::from(std::span<const float>(three), {2, 2}));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected fewer than 2^59 elements",
               Tensor::empty({std::int64_t{1} << 60}));
}

TEST(Tensor, UndefinedTensorsSaySo) {
  const Tensor none;
  EXPECT_FALSE(none.defined());
  EXPECT_EQ(none.str(), "undefined tensor");
}

}  // namespace
}  // namespace convscope
