// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_schedules_cuda_test.cpp: tests the counts of implicit_gemm, and that every tile and
// number of parts that `convscope tune` tries has the numbers of the reference.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "layers/conv2d/algorithm.h"
#include "layers/dispatch/cost/choose.h"
#include "layers/dispatch/half_problem.h"
#include "tests/support/cuda.h"
#include "tests/support/favoured_kernel.h"
#include "tests/support/numerics.h"

namespace convscope {
namespace {

using testing::ConvolutionCase;
using testing::Tier;
using ImplicitGemmSchedulesOnCuda = testing::CudaTest;

const Conv2dAlgorithm& algorithm() {
  return conv2d_algorithms(DeviceType::cuda).get("implicit_gemm");
}

// 64 channels of one tap are one step. The only tile that pads nothing has 64 rows and 64 columns.
TEST_F(ImplicitGemmSchedulesOnCuda, CountsOfOneTileByHand) {
  const Conv2dProblem problem = Conv2dProblem::parse("n=1,c=64,h=8,w=8,k=64");
  const testing::FavouredKernel favoured({"conv2d", "implicit_gemm", Direction::forward},
                                         {"three products 64x64"});
  const Cost cost = algorithm().cost(problem, Direction::forward);
  const double x = 64 * 64, w = 64 * 64, y = 64 * 64;
  EXPECT_EQ(std::string(cost.schedule), "three products 64x64");
  EXPECT_EQ(cost.blocks, 1);
  EXPECT_EQ(cost.resident, 2);
  EXPECT_EQ(cost.chain, 1);
  EXPECT_EQ(cost.issued, 1.5 * 2 * 64 * 64 * 64);  // three fp16 products, at twice the rate of TF32
  EXPECT_EQ(cost.cached, 2 * 2 * (64 + 64) * 64);  // two planes of fp16
  EXPECT_EQ(cost.copies, 2 * (64 + 64) * 8 / 128);  // 128 threads, 16 bytes each
  EXPECT_EQ(cost.stored, y / 2);                    // in pairs
  EXPECT_EQ(cost.pass_bytes, x * (2 * 4 + 2 * 2));  // maximum, read again, two fp16 numbers
  EXPECT_EQ(cost.launches, 3);
  EXPECT_EQ(cost.prepared_bytes, w * (2 * 4 + 2 * 2));
  EXPECT_EQ(cost.prepare_launches, 1);
}

TEST_F(ImplicitGemmSchedulesOnCuda, PhasesHaveTheStepsOfTheirTaps) {
  // dx at stride 2 has phases of 1, 2, 2 and 4 taps, each with 16 pixels of one image.
  const Conv2dProblem problem =
      Conv2dProblem::parse("n=1,c=64,h=8,w=8,k=64,r=3,s=3,stride=2,pad=1,dtype=f16");
  const testing::FavouredKernel favoured({"conv2d", "implicit_gemm", Direction::backward_data},
                                         {"one product 64x64"});
  const Cost cost = algorithm().cost(problem, Direction::backward_data);
  EXPECT_EQ(cost.blocks * cost.chain, 4 * 4);  // four tiles, the longest of four steps
  EXPECT_EQ(cost.issued, 9 * 2 * 64 * 64 * 64);
}

TEST_F(ImplicitGemmSchedulesOnCuda, EveryScheduleHasTheNumbersOfTheReference) {
  std::set<std::string> schedules;
  std::set<double> blocks;
  for (const char* text : {"n=1,c=40,h=9,w=11,k=72,r=3,s=3,pad=1",
                           "n=2,c=72,h=7,w=8,k=40,r=3,s=3,stride=2,pad=1,dtype=bf16"}) {
    for (const bool last : {false, true}) {
      const Conv2dProblem parsed = Conv2dProblem::parse(text);
      if (last && !is_half(parsed.dtype)) continue;
      const Conv2dProblem problem = last ? with_nhwc(parsed) : parsed;
      ConvolutionCase numbers(problem, Tier::exact);
      for (std::uint64_t seed = 1; seed <= 12; ++seed) {
        const ExploreSchedules other(seed);
        for (const Direction direction : kDirections) {
          const Cost cost = algorithm().cost(problem, direction);
          schedules.insert(cost.schedule);
          blocks.insert(cost.blocks);
          EXPECT_EQ(numbers.check(algorithm(), direction), "")
              << problem.text() << ", seed " << seed << ": " << cost.schedule << ", " << cost.blocks
              << " blocks";
        }
      }
    }
  }
  EXPECT_GE(schedules.size(), 7u);
  EXPECT_GE(blocks.size(), 8u);
}

}  // namespace
}  // namespace convscope
