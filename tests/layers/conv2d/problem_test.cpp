// SPDX-License-Identifier: Apache-2.0
// problem_test.cpp: tests a convolution problem: conversion to text and back, sizes, FLOPs and
// bytes.
#include "layers/conv2d/problem.h"

#include <gtest/gtest.h>

#include "tests/support/cases.h"
#include "tests/support/expect_error.h"

namespace convscope {
namespace {

TEST(Conv2dProblem, TextParsesBackToTheSameProblem) {
  for (std::uint64_t i = 0; i < 200; ++i) {
    const Conv2dProblem problem = testing::random_problem(3, i);
    EXPECT_EQ(Conv2dProblem::parse(problem.text()), problem) << problem.text();
  }
  Conv2dProblem twice = testing::random_problem(3, 1);
  twice.dtype = DType::f64;
  EXPECT_EQ(Conv2dProblem::parse(twice.text()), twice);
}

TEST(Conv2dProblem, ReadsShortFormsAndDefaults) {
  const Conv2dProblem problem = Conv2dProblem::parse("c=3,h=9,w=8,k=4,r=3,s=2,stride=2x1,pad=1x0");
  EXPECT_EQ(problem.n, 1);
  EXPECT_EQ(problem.p(), 5);
  EXPECT_EQ(problem.q(), 7);
  EXPECT_EQ(problem.pad_bottom, 1);
  EXPECT_EQ(problem.pad_right, 0);
  EXPECT_EQ(problem.text(), "n=1,c=3,h=9,w=8,k=4,r=3,s=2,stride=2x1,pad=1x0,dilation=1,groups=1");
}

TEST(Conv2dProblem, CountsFlopsAndBytes) {
  const Conv2dProblem problem = Conv2dProblem::parse("n=64,c=6,h=12,w=12,k=16,r=5,s=5");
  EXPECT_EQ(problem.nominal_flops(), 2.0 * 64 * 16 * 8 * 8 * 6 * 25);
  EXPECT_EQ(problem.nominal_bytes(), 4.0 * (64 * 6 * 144 + 16 * 150 + 64 * 16 * 64));
  // A kernel of a group reads the channels of its group.
  EXPECT_EQ(Conv2dProblem::parse("n=2,c=6,h=12,w=12,k=9,r=5,s=5,groups=3").nominal_flops(),
            2.0 * 2 * 9 * 8 * 8 * 2 * 25);
}

TEST(Conv2dProblem, OutputSizeRoundsDown) {
  EXPECT_EQ(Conv2dProblem::parse("h=10,w=11,r=3,s=3,stride=3").p(), 3);
  EXPECT_EQ(Conv2dProblem::parse("h=10,w=11,r=3,s=3,stride=3").q(), 3);
}

TEST(Conv2dProblem, RefusesTextItDoesNotUnderstand) {
  EXPECT_ERROR(ErrorKind::kInvalid, "no key 'strid'; did you mean 'stride'?",
               Conv2dProblem::parse("h=5,w=5,strid=2"));
  EXPECT_ERROR(ErrorKind::kInvalid, "'h' occurs twice", Conv2dProblem::parse("h=5,w=5,h=6"));
  EXPECT_ERROR(ErrorKind::kInvalid, "'h=five' is not a number", Conv2dProblem::parse("h=five"));
  EXPECT_ERROR(ErrorKind::kInvalid, "'h=5x' is not a number", Conv2dProblem::parse("h=5x,w=5"));
  EXPECT_ERROR(ErrorKind::kInvalid, "'h=' is not a number", Conv2dProblem::parse("h=,w=5"));
  EXPECT_ERROR(ErrorKind::kInvalid, "has no '='", Conv2dProblem::parse("h=5,,w=5"));
  EXPECT_ERROR(ErrorKind::kInvalid, "has no '='", Conv2dProblem::parse(""));
  EXPECT_ERROR(ErrorKind::kInvalid, "'pad' takes one, two or four numbers",
               Conv2dProblem::parse("h=5,w=5,pad=1x2x3"));
  EXPECT_ERROR(ErrorKind::kInvalid, "'n' takes one number", Conv2dProblem::parse("n=1x2"));
  EXPECT_ERROR(ErrorKind::kInvalid, "'f23' is not an element type",
               Conv2dProblem::parse("h=5,w=5,dtype=f23"));
  EXPECT_ERROR(ErrorKind::kInvalid, "is not a number",
               Conv2dProblem::parse("h=99999999999999999999,w=5"));
}

TEST(Conv2dProblem, RefusesSizesThatDoNotFit) {
  EXPECT_ERROR(ErrorKind::kInvalid, "got a kernel width of 6 with dilation 1",
               Conv2dProblem::parse("h=5,w=5,s=6"));
  EXPECT_ERROR(ErrorKind::kInvalid, "with dilation 3 (reach 7) on an image height of 5",
               Conv2dProblem::parse("h=5,w=5,r=3,dilation=3"));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected groups to divide",
               Conv2dProblem::parse("c=4,k=6,groups=4"));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected a padding of 0 to", Conv2dProblem::parse("pad=-1"));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected a channel count C of 1 to",
               Conv2dProblem::parse("c=0"));
  EXPECT_ERROR(ErrorKind::kInvalid, "at most 2^58 elements",
               Conv2dProblem::parse("n=2147483647,c=2147483647"));
  EXPECT_ERROR(ErrorKind::kInvalid, "fewer than 2^63 elements",
               Conv2dProblem::parse("n=2147483647,c=2147483647,h=2147483647,w=1"));
}

}  // namespace
}  // namespace convscope
