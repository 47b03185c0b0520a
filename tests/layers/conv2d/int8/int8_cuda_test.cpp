// SPDX-License-Identifier: Apache-2.0
// int8_cuda_test.cpp: tests convolution on integers on CUDA. For every algorithm and every
// epilogue, the codes are those of double arithmetic, and two runs give the same codes.
#include "layers/conv2d/algorithm.h"
#include "layers/dispatch/cost/choose.h"
#include "layers/dispatch/run.h"
#include "tests/layers/conv2d/int8/int8_cases.h"
#include "tests/support/cases.h"
#include "tests/support/cuda.h"

namespace convscope {
namespace {

using testing::Int8Case;
using testing::Int8Options;
using testing::with_types;

constexpr const char* kTypes[] = {"u8:i8:i32:u8", "i8:i8:i32:i8", "u8:i8:i32:f32",
                                  "i8:i8:i32:u8", "u8:i8:i32:i8", "i8:i8:i32:f32"};

class Int8OnCuda : public testing::CudaTest {};

// Checks all algorithms that accept the problem and returns how many there are. Reports only the
// first failure.
int check_all(Int8Case& one) {
  int algorithms = 0;
  for (const auto& [name, algorithm] : conv2d_algorithms(DeviceType::cuda).entries()) {
    if (!support_of(algorithm, one.problem(), Direction::forward).yes) continue;
    ++algorithms;
    std::vector<double> first, second;
    std::string wrong = one.check(algorithm, &first);
    if (wrong.empty() && !testing::is_emulated()) {
      wrong = one.check(algorithm, &second);
      if (wrong.empty() && first != second) wrong = cat(name, ": two runs gave different codes");
    }
    EXPECT_EQ(wrong, "");
  }
  return algorithms;
}

TEST_F(Int8OnCuda, CodesAreThoseOfDoubleArithmeticOnRandomProblems) {
  const bool small = testing::is_emulated();
  int run = 0;
  for (std::uint64_t i = 0; i < (small ? 60 : 400); ++i) {
    const Conv2dProblem problem = testing::shrunk(testing::random_problem(7, i), small ? 1e5 : 4e5);
    if (problem.is_empty()) continue;
    const Conv2dProblem typed = with_types(problem, kTypes[i % 6]);
    Int8Case one(typed, testing::options_by_turns(i, typed.types->y), i);
    run += check_all(one);
    if (HasFailure()) return;
  }
  EXPECT_GT(run, small ? 20 : 130);
}

// Many channels, many pixels. Each run explores another choice of tiles and of parts.
TEST_F(Int8OnCuda, CodesAreThoseOfDoubleArithmeticInEveryTile) {
  std::uint64_t i = 0;
  for (const char* text :
       {"n=2,c=32,h=13,w=13,k=80,r=3,s=3,pad=1", "n=1,c=256,h=3,w=3,k=272,r=3,s=3,pad=1",
        "n=1,c=528,h=2,w=3,k=24", "n=3,c=3,h=31,w=30,k=64,r=7,s=7,stride=2,pad=3",
        "n=1,c=64,h=9,w=8,k=64,r=3,s=3,pad=2,dilation=2,groups=2", "n=5,c=400,h=1,w=1,k=120",
        "n=1,c=48,h=6,w=5,k=160,r=1,s=5,pad=0x2",
        "n=2,c=40,h=15,w=14,k=40,r=5,s=3,stride=2x1,pad=2x1,groups=40",
        "n=1,c=16,h=20,w=40,k=144,r=2,s=2,stride=2",
        "n=2,c=20,h=6,w=16,k=20,r=3,s=3,pad=1,groups=20",
        "n=1,c=36,h=9,w=15,k=36,r=5,s=5,stride=2,pad=2,groups=36"}) {
    for (const char* types : {kTypes[0], kTypes[1], kTypes[2]}) {
      const Conv2dProblem typed = with_types(Conv2dProblem::parse(text), types);
      Int8Case one(typed, testing::options_by_turns(i, typed.types->y), i);
      const ExploreSchedules explore(++i);
      EXPECT_GE(check_all(one), 1) << typed.text();
      if (HasFailure()) return;
      if (testing::is_emulated() && i % 2 == 1) break;
    }
  }
}

TEST_F(Int8OnCuda, CodesAreThoseOfDoubleArithmeticOnLayersOfNetworks) {
  if (testing::is_emulated()) GTEST_SKIP() << "the layers above are enough for the emulation";
  for (const char* file : {"resnet18", "mobilenet_v2", "lenet", "edge_cases"}) {
    for (const Conv2dProblem& large : testing::shapes_of(file)) {
      const Conv2dProblem problem = testing::shrunk(large, 4e6);
      if (problem.is_empty() || problem.dtype != DType::f32 || problem.math != MathMode::f32) {
        continue;
      }
      for (const char* types : {kTypes[0], kTypes[5]}) {
        Int8Case one(with_types(problem, types), {.relu = true}, 3);
        check_all(one);
        if (HasFailure()) return;
      }
    }
  }
}

// The weights have every block shape. The problems are random, so the tile with the lowest
// estimated time changes from problem to problem.
TEST_F(Int8OnCuda, BlockSparseCodesAreThoseOfDoubleArithmetic) {
  const bool small = testing::is_emulated();
  int run = 0;
  for (std::uint64_t i = 0; i < (small ? 60 : 300); ++i) {
    Conv2dProblem dense = testing::shrunk(testing::random_problem(8, i), small ? 1e5 : 4e5);
    if (dense.is_empty() || dense.groups != 1) continue;
    dense.dtype = DType::f32;
    for (const Conv2dProblem& sparse : testing::sparse_problems(dense, i, small ? 1 : 3)) {
      const Conv2dProblem typed = with_types(sparse, kTypes[i % 6]);
      Int8Options options = testing::options_by_turns(i, typed.types->y);
      options.extreme = i % 11 == 5;
      Int8Case one(typed, options, i);
      EXPECT_EQ(check_all(one), 1) << typed.text();
      ++run;
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(run, small ? 20 : 200);
}

// Each run explores another choice of tiles. The problems cover several segments of pixels, several
// images, whole and partial rows, and 1x1 kernels (matrix products).
TEST_F(Int8OnCuda, BlockSparseCodesAreThoseOfDoubleArithmeticInEveryTile) {
  std::uint64_t i = 0;
  for (const char* text :
       {"n=2,c=20,h=12,w=40,k=256,r=3,s=3,pad=1,weights=blocks16x1:400",
        "n=9,c=16,h=30,w=30,k=128,weights=blocks16x4:10",
        "n=11,c=64,h=7,w=7,k=64,r=3,s=3,pad=1,weights=blocks32x1:100",
        "n=5,c=16,h=20,w=120,k=64,r=3,s=3,pad=1,stride=2,weights=blocks4x1:200",
        "n=300,c=33,h=2,w=3,k=48,r=2,s=3,weights=blocks16x3:40",
        "n=3,c=1600,h=1,w=1,k=16,weights=blocks16x4:90",
        "n=1,c=1700,h=5,w=5,k=16,r=3,s=3,pad=1,weights=blocks16x1:900",
        "n=40,c=800,h=2,w=2,k=32,r=2,s=2,weights=blocks16x1:1900",
        "n=1,c=16,h=60,w=60,k=16,r=5,s=3,pad=2x3,dilation=2x3,stride=3x2,weights=blocks8x1:99"}) {
    for (const char* types : {kTypes[0], kTypes[1], kTypes[2]}) {
      const Conv2dProblem typed = with_types(Conv2dProblem::parse(text), types);
      Int8Case one(typed, testing::options_by_turns(i, typed.types->y), i);
      const ExploreSchedules explore(++i);
      EXPECT_EQ(check_all(one), 1) << typed.text();
      if (HasFailure()) return;
      if (testing::is_emulated()) break;
    }
  }
}

// Accumulator and bias are some hundred times as large as the resulting code, and the code's
// fraction is very close to 1/2. f32 would round many codes wrongly, so kernels compute such codes
// in double.
TEST_F(Int8OnCuda, CodesNearTiesAreThoseOfDoubleArithmetic) {
  for (const char* text : {"c=64,h=3,w=3,k=256,r=3,s=3", "c=256,h=9,w=9,k=256,r=9,s=9,groups=256",
                           "c=64,h=3,w=3,k=256,r=3,s=3,weights=blocks16x1:5000"}) {
    Int8Case one(with_types(Conv2dProblem::parse(text), kTypes[0]),
                 {.near_ties = 3e-5, .step = 4e-3}, 11);
    EXPECT_GE(check_all(one), 1);
  }
}

TEST_F(Int8OnCuda, TheLargestSumsAreExact) {
  for (const char* text : {"n=1,c=64,h=6,w=6,k=32,r=3,s=3,pad=1", "n=3,c=256,h=1,w=1,k=20",
                           "n=1,c=64,h=6,w=6,k=32,r=3,s=3,pad=1,weights=blocks16x1:1000"}) {
    for (const char* types : kTypes) {
      Int8Options options;
      options.extreme = true;
      options.bias = false;
      Int8Case one(with_types(Conv2dProblem::parse(text), types), options, 1);
      EXPECT_GE(check_all(one), 1);
    }
  }
}

TEST_F(Int8OnCuda, AlgorithmsAreCompleteAndTakeAnEmptyBatch) {
  int algorithms = 0;
  for (const auto& [name, algorithm] : conv2d_algorithms(DeviceType::cuda).entries()) {
    if (!name.starts_with("int8")) continue;
    SCOPED_TRACE(name);
    int taken = 0;
    for (const char* text :
         {"n=2,c=20,h=7,w=6,k=18,r=3,s=3,pad=1", "n=2,c=18,h=7,w=6,k=18,r=3,s=3,groups=18",
          "n=2,c=20,h=7,w=6,k=32,r=3,s=3,pad=1,weights=blocks16x1:100"}) {
      Conv2dProblem problem = with_types(Conv2dProblem::parse(text), "u8:i8:i32:u8");
      if (!support_of(algorithm, problem, Direction::forward).yes) continue;
      ++taken;
      EXPECT_FALSE(support_of(algorithm, problem, Direction::backward_data).yes);
      const Conv2dCost cost = algorithm.cost(problem, Direction::forward);
      EXPECT_GT(cost.flops, 0.0);
      EXPECT_GT(cost.bytes, 0.0);
      EXPECT_GT(cost.issued, 0.0);
      problem.n = 0;
      run_algorithm(algorithm, problem, Direction::forward,
                    random_operands(problem.operands(Direction::forward), testing::cuda()));
    }
    EXPECT_GT(taken, 0);
    ++algorithms;
  }
  EXPECT_GE(algorithms, 4);
}

}  // namespace
}  // namespace convscope
