// SPDX-License-Identifier: Apache-2.0
// int8_test.cpp: tests convolution on integers: sums are exact, and codes are those of double
// arithmetic, with each instruction set, with and without VNNI, with one and two threads.
#include "tests/layers/conv2d/int8/int8_cases.h"
#include "tests/support/cases.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using testing::Int8Case;
using testing::Int8Options;
using testing::MachineScope;
using testing::with_types;

// Checks all algorithms that take the problem; returns their number.
int check_everywhere(Int8Case& one) {
  int algorithms = 0;
  for (const auto& [name, algorithm] : conv2d_algorithms(DeviceType::cpu).entries()) {
    if (!support_of(algorithm, one.problem(), Direction::forward).yes) continue;
    ++algorithms;
    EXPECT_EQ(one.check_everywhere(algorithm), "");
    if (::testing::Test::HasFailure()) return algorithms;
  }
  return algorithms;
}

class Int8 : public ::testing::Test {
 protected:
  MachineScope scope_;
};

TEST_F(Int8, CodesAreThoseOfDoubleArithmeticOnRandomProblems) {
  std::int64_t ties = 0;
  int run = 0;
  for (std::uint64_t i = 0; i < 300; ++i) {
    Conv2dProblem problem = testing::shrunk(testing::random_problem(7, i), 2e5);
    if (problem.is_empty()) continue;
    problem.dtype = DType::f32;
    const Conv2dProblem typed = with_types(problem, testing::kCodeTypes[i % 6]);
    Int8Case one(typed, testing::options_by_turns(i, typed.types->y), i);
    run += check_everywhere(one);
    ties += one.ties();
    if (HasFailure()) return;
  }
  EXPECT_GT(run, 100);
  RecordProperty("ties", static_cast<int>(ties));
}

TEST_F(Int8, BlockSparseCodesAreThoseOfDoubleArithmetic) {
  int run = 0;
  for (std::uint64_t i = 0; i < 200; ++i) {
    Conv2dProblem dense = testing::shrunk(testing::random_problem(8, i), 2e5);
    if (dense.is_empty()) continue;
    dense.dtype = DType::f32;
    for (const Conv2dProblem& sparse : testing::sparse_problems(dense, i, 2)) {
      const Conv2dProblem typed = with_types(sparse, testing::kCodeTypes[i % 6]);
      Int8Options options = testing::options_by_turns(i, typed.types->y);
      options.extreme = i % 11 == 5;
      Int8Case one(typed, options, i);
      run += check_everywhere(one);
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(run, 100);
}

TEST_F(Int8, BlockSparseGroups) {
  for (const char* types : {"i8:i8:i32:i8", "u8:i8:i32:u8"}) {
    for (const char* blocks : {"blocks16x1:100", "blocks32x3:30", "blocks4x1:300"}) {
      const Conv2dProblem problem = Conv2dProblem::parse(
          cat("n=2,c=32,h=5,w=6,k=64,r=3,s=3,pad=1,groups=2,weights=", blocks));
      Int8Case one(with_types(problem, types), {}, 6);
      EXPECT_EQ(check_everywhere(one), 1) << blocks;
    }
  }
}

// Rows have fewer pixels than a tile, as many, or more. The weights have one row of 16 output
// channels, or several.
TEST_F(Int8, BlockSparseTilesOfEveryWidth) {
  for (int width = 1; width <= 60; ++width) {
    for (const char* rest :
         {"c=20,k=32,r=3,s=3,pad=1,weights=blocks16x1:110", "c=36,k=48,weights=blocks16x4:9",
          "c=3,k=16,r=3,s=3,pad=1,stride=2,"
          "weights=blocks16x1:9"}) {
      const Conv2dProblem problem = Conv2dProblem::parse(cat("n=2,h=3,w=", width, ",", rest));
      Int8Case one(with_types(problem, problem.c < 16 ? "f32:i8:i32:u8" : "u8:i8:i32:u8"),
                   {.relu = true}, 4);
      EXPECT_EQ(check_everywhere(one), 1) << width;
      if (HasFailure()) return;
    }
  }
}

TEST_F(Int8, CodesAreThoseOfDoubleArithmeticOnLayersOfNetworks) {
  for (const char* file : {"resnet18", "mobilenet_v2", "lenet", "edge_cases"}) {
    for (const Conv2dProblem& large : testing::shapes_of(file)) {
      const Conv2dProblem problem = testing::shrunk(large, 1e6);
      if (problem.is_empty() || problem.dtype != DType::f32 || problem.math != MathMode::f32)
        continue;
      for (const char* types : {"u8:i8:i32:u8", "f32:i8:i32:u8", "i8:i8:i32:f32"}) {
        Int8Case one(with_types(problem, types), {.relu = true}, 3);
        check_everywhere(one);
        if (HasFailure()) return;
      }
    }
  }
}

// A kernel that adds pairs of products in 16 bits would saturate: 255 * 127 * 2 exceeds 16 bits.
TEST_F(Int8, TheLargestSumsAreExact) {
  for (const char* text : {"n=1,c=64,h=6,w=6,k=32,r=3,s=3,pad=1", "n=3,c=256,h=1,w=1,k=20",
                           "n=1,c=4,h=9,w=20,k=18,r=5,s=5,stride=2"}) {
    for (const char* types : testing::kCodeTypes) {
      Int8Options options;
      options.extreme = true;
      options.bias = false;
      Int8Case one(with_types(Conv2dProblem::parse(text), types), options, 1);
      EXPECT_GE(check_everywhere(one),
                std::string_view(types).starts_with("f32") && one.problem().c >= 16 ? 0 : 1);
    }
  }
}

TEST_F(Int8, AlgorithmsAreCompleteAndTakeAnEmptyBatch) {
  int algorithms = 0;
  for (const auto& [name, algorithm] : conv2d_algorithms(DeviceType::cpu).entries()) {
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
      EXPECT_GT(std::string_view(algorithm.idea).size(), 10u);
      EXPECT_GT(std::string_view(algorithm.paper).size(), 10u);
      const Conv2dCost cost = algorithm.cost(problem, Direction::forward);
      EXPECT_GT(cost.flops, 0.0);
      EXPECT_GT(cost.bytes, 0.0);
      EXPECT_GT(cost.issued, 0.0);
      problem.n = 0;
      run_algorithm(algorithm, problem, Direction::forward,
                    random_operands(problem.operands(Direction::forward), Device{}));
    }
    EXPECT_GT(taken, 0);
    algorithms += 1;
  }
  EXPECT_GE(algorithms, 3);
}

// With step sizes that are powers of two, many sums are exactly between two codes. Such ties round
// to the even code.
TEST_F(Int8, TiesRoundToEven) {
  const auto problem = with_types(Conv2dProblem::parse("c=16,h=4,w=4,k=16"), "u8:i8:i32:i8");
  const Conv2dAlgorithm& algorithm = conv2d_algorithms(DeviceType::cpu).get("int8_direct");
  const Tensor x = Tensor::zeros({1, 1, 4, 4, 16}, DType::u8);
  const Tensor w = Tensor::zeros({16, 16, 1, 1}, DType::i8);
  for (int i = 0; i < 16; ++i) x.data<std::uint8_t>()[16 * i] = static_cast<std::uint8_t>(i);
  for (int k = 0; k < 16; ++k) w.data<std::int8_t>()[16 * k] = static_cast<std::int8_t>(k - 8);
  const double s_x = 0.5, s_w = 1, s_y = 1;
  OperandViews views;
  views.x = {.scales = &s_x};
  views.w = {.scales = &s_w};
  views.y = {.scales = &s_y};
  for (int i = 0; i < kIsaCount; ++i) {
    if (!supports_isa(static_cast<Isa>(i))) continue;
    set_isa(static_cast<Isa>(i));
    const Tensor y = Tensor::zeros({1, 1, 4, 4, 16}, DType::i8);
    const Scratch<Conv2dProblem> scratch(algorithm, problem, Direction::forward, Device{});
    algorithm.forward({problem,
                       x.raw_data(),
                       w.raw_data(),
                       nullptr,
                       y.raw_data(),
                       scratch.workspace(),
                       {},
                       scratch.prepare(w.raw_data(), views),
                       views});
    for (int p = 0; p < 16; ++p) {
      for (int k = 0; k < 16; ++k) {
        EXPECT_EQ(y.data<std::int8_t>()[16 * p + k], std::nearbyint(0.5 * p * (k - 8)));
      }
    }
  }
}

// Close to a tie, f32 arithmetic may choose the wrong code. f32 arithmetic also rounds sums of 2^24
// and more, and it loses digits if a residual is subtracted from a large scaled sum.
TEST_F(Int8, CodesNextToTiesAreThoseOfDoubleArithmetic) {
  for (const char* text : {"c=64,k=502,h=1,w=3", "c=1040,k=251,h=1,w=1",
                           "c=502,k=502,groups=502,h=3,w=3,r=3,s=3,pad=1"}) {
    for (const char* types : {"u8:i8:i32:u8", "i8:i8:i32:i8"}) {
      int turn = 0;
      for (const double beside : {1.5e-6, 4e-6, 1e-5, 2e-5, 3e-5, 4e-5, 6e-5, 1e-4}) {
        for (const bool extreme : {false, true}) {
          Int8Options options;
          options.near_ties = beside;
          options.extreme = extreme;
          if (turn++ % 3 == 1) options.residual = DType::f32;
          if (turn % 3 == 1) options.residual = DType::u8;
          options.bias = options.residual != DType::f32;
          // The step size has many digits. A round step size would make exact ties, and then the
          // last bit of a double would decide which code is right.
          if (!options.bias) options.step = extreme ? 4.7713113713 : 1.0371137e-3;
          Int8Case one(with_types(Conv2dProblem::parse(text), types), options, 9);
          EXPECT_GE(check_everywhere(one), 1);
          if (HasFailure()) return;
        }
      }
    }
  }
}

// Sums are far larger than any code. Some exceed 2^15 times the largest code, where 32-bit
// arithmetic would overflow.
TEST_F(Int8, WhatDoesNotFitIsClipped) {
  for (const char* types : {"u8:i8:i32:u8", "i8:i8:i32:i8", "u8:i8:i32:i8"}) {
    for (const double step : {1e-1, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 1e-6, 1e-9, 1e-20}) {
      for (const bool bounded : {false, true}) {
        Int8Options options;
        options.step = step;
        if (bounded) options.low = -3, options.high = 6;
        Int8Case one(with_types(Conv2dProblem::parse("n=2,c=40,h=5,w=6,k=40"), types), options, 5);
        EXPECT_GE(check_everywhere(one), 1);
        if (HasFailure()) return;
      }
    }
  }
}

// One kernel call computes all tiles that have the same taps. Rows have every width, and the call
// must not write to the memory next to them.
TEST_F(Int8, LinesOfEveryWidth) {
  std::uint64_t turn = 0;
  for (int width = 1; width <= 130; width += width < 30 ? 1 : 7) {
    for (const char* rest : {"c=20,k=48", "c=36,k=16,r=3,s=3,pad=1", "c=3,k=20,r=3,s=3,pad=1",
                             "c=16,k=32,r=1,s=3,pad=1", "c=5,k=16,r=3,s=5,pad=2"}) {
      const Conv2dProblem problem = Conv2dProblem::parse(cat("n=1,h=2,w=", width, ",", rest));
      constexpr DType kTo[] = {DType::u8, DType::i8, DType::f32};
      const DType to = kTo[++turn % 3];
      const std::string types = cat(problem.c < 16 ? "f32:i8:i32:" : "u8:i8:i32:", name_of(to));
      Int8Case one(with_types(problem, types.c_str()), testing::options_by_turns(turn, to), 4);
      EXPECT_GE(check_everywhere(one), 1) << width;
      if (HasFailure()) return;
    }
  }
}

// If the bias is NaN, y is the lowest code; if the bias is +infinity, y is the highest code.
TEST_F(Int8, BiasesThatAreNoNumbers) {
  const auto problem = with_types(Conv2dProblem::parse("c=16,h=4,w=5,k=16"), "u8:i8:i32:u8");
  const Conv2dAlgorithm& algorithm = conv2d_algorithms(DeviceType::cpu).get("int8_direct");
  const Tensor x = Tensor::zeros({1, 1, 4, 5, 16}, DType::u8);
  const Tensor w = Tensor::zeros({16, 16, 1, 1}, DType::i8);
  const double infinity = std::numeric_limits<double>::infinity();
  const double bias[16] = {std::nan(""), infinity, -infinity, 1e300,  -1e300, 7,   1e30, -1e30,
                           40000,        -40000,   32767.5,   -32769, 2.5,    3.5, 0.5,  -0.5};
  const double expected[16] = {0, 255, 0, 255, 0, 7, 255, 0, 255, 0, 255, 0, 2, 4, 0, 0};
  const double one = 1;
  OperandViews views;
  views.x = {.scales = &one};
  views.w = {.scales = &one};
  views.y = {.scales = &one};
  for (const int finite : {0, 5}) {  // with and without biases that make all shifts unsure
    for (int i = 0; i < kIsaCount; ++i) {
      if (!supports_isa(static_cast<Isa>(i))) continue;
      set_isa(static_cast<Isa>(i));
      double b[16];
      for (int k = 0; k < 16; ++k) b[k] = k < finite ? 0 : bias[k];
      const Tensor y = Tensor::zeros({1, 1, 4, 5, 16}, DType::u8);
      const Scratch<Conv2dProblem> scratch(algorithm, problem, Direction::forward, Device{});
      algorithm.forward({problem,
                         x.raw_data(),
                         w.raw_data(),
                         b,
                         y.raw_data(),
                         scratch.workspace(),
                         {},
                         scratch.prepare(w.raw_data(), views),
                         views});
      for (int at = 0; at < 20 * 16; ++at) {
        EXPECT_EQ(y.data<std::uint8_t>()[at], at % 16 < finite ? 0 : expected[at % 16]) << at % 16;
      }
    }
  }
}

TEST_F(Int8, RefusesWhatItsSumsCannotHold) {
  const Conv2dAlgorithm& algorithm = conv2d_algorithms(DeviceType::cpu).get("int8_direct");
  const auto reason = [&](const char* text, const char* types) {
    return support_of(algorithm, with_types(Conv2dProblem::parse(text), types), Direction::forward)
        .reason;
  };
  EXPECT_EQ(reason("c=65793,k=1", "u8:i8:i32:u8"), "");
  EXPECT_EQ(reason("c=65794,k=1", "u8:i8:i32:u8"),
            "expects at most 65793 terms of a sum, because it has 32 bits, got 65794");
  EXPECT_EQ(reason("c=8,k=8", "u8:i8:f32:u8"),
            "expects x of u8, i8 or f32, w of i8, sums of i32 and y of u8, i8 or f32, got "
            "u8:i8:f32:u8");
  EXPECT_EQ(
      reason("c=16,k=8", "f32:i8:i32:u8"),
      "expects x of f32 in layout nchw:nchw16c only, with fewer than 16 channels and one group, "
      "got layout nchw:nchw16c, 16 channels and 1 groups");
}

}  // namespace
}  // namespace convscope
