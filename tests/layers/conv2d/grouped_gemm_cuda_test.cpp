// SPDX-License-Identifier: Apache-2.0
// grouped_gemm_cuda_test.cpp: every kernel of grouped_gemm in all of its types against the double
// reference: bundles of one and several groups, unequal sides, strides with phases, dilation, lone
// octets, tails of slices, tiles and images; epilogues; refusals.
#include <gtest/gtest.h>

#include <set>
#include <tuple>
#include <vector>

#include "layers/conv2d/execute.h"
#include "layers/conv2d/grouped_gemm/cuda/grouped_gemm_plan.h"
#include "tests/support/cases.h"
#include "tests/support/cuda.h"
#include "tests/support/numerics.h"

namespace convscope {
namespace {

using testing::ConvolutionCase;
using testing::Tier;

class GroupedGemmOnCuda : public testing::CudaTest {};

const Conv2dAlgorithm& card() { return conv2d_algorithms(DeviceType::cuda).get("grouped_gemm"); }

const char* const kProblems[] = {
    "n=2,c=32,h=9,w=11,k=32,r=3,s=3,pad=1,groups=8",            // 4 channels, two groups a bundle
    "n=1,c=64,h=8,w=9,k=64,r=3,s=3,pad=1,groups=8",             // 8 channels
    "n=1,c=48,h=7,w=7,k=48,r=3,s=3,pad=1,groups=3",             // 16
    "n=1,c=48,h=6,w=7,k=48,r=3,s=3,pad=1,groups=2",             // 24
    "n=2,c=64,h=5,w=7,k=64,r=3,s=3,pad=1,groups=2",             // 32
    "n=1,c=128,h=4,w=5,k=128,r=3,s=3,pad=1,groups=2",           // 64
    "n=1,c=80,h=4,w=5,k=80,r=1,s=1,groups=2",                   // 40: octets of y one by one
    "n=1,c=32,h=9,w=8,k=32,r=3,s=3,stride=2,pad=1,groups=4",    // phases of dx
    "n=1,c=16,h=11,w=10,k=16,r=5,s=5,stride=2,pad=2,groups=4",
    "n=1,c=16,h=9,w=13,k=16,r=5,s=3,stride=3x2,pad=2x0x1x3,dilation=1x2,groups=2",
    "n=2,c=16,h=7,w=8,k=16,r=1,s=1,stride=2,groups=2",          // phases without a tap
    "n=2,c=12,h=6,w=5,k=12,r=3,s=3,pad=1,groups=3",             // a bundle that is not full
    "n=1,c=12,h=6,w=5,k=18,r=3,s=3,pad=1,groups=6",             // 2 in, 3 out
    "n=1,c=8,h=6,w=5,k=32,r=3,s=3,pad=1,groups=2",              // 4 in, 16 out
    "n=1,c=32,h=6,w=5,k=8,r=3,s=3,pad=1,groups=2",              // 16 in, 4 out
    "n=9,c=16,h=3,w=3,k=16,r=3,s=3,pad=1,groups=2",             // several images in a tile
    "n=1,c=72,h=10,w=40,k=72,r=3,s=3,pad=1,groups=9",           // lines cut; slices of unequal size
    "n=3,c=16,h=23,w=29,k=16,r=3,s=3,pad=1,groups=2",           // several tiles and parts
    "n=1,c=24,h=1,w=1,k=24,r=3,s=3,pad=1,groups=3",
    "n=1,c=16,h=3,w=2,k=16,r=7,s=7,pad=3,groups=4",
};

std::vector<Conv2dProblem> problems() {
  std::vector<Conv2dProblem> out;
  for (const char* text : kProblems) {
    Conv2dProblem z = Conv2dProblem::parse(text);
    z.layout = ActivationLayout::channels_last;
    const std::size_t turn = out.size() % 3;
    if (turn == 0) {
      z.math = MathMode::tf32;
      out.push_back(z);
      z.math = MathMode::f32;
    }
    z.dtype = turn == 2 ? DType::f16 : DType::bf16;
    z.types = OperandTypes{.x = z.dtype, .w = DType::f32, .accumulator = DType::f32, .y = z.dtype};
    out.push_back(z);
    if (turn == 1) {
      z.types.reset();
      z.dtype = DType::f32;
      z.math = MathMode::tf32;
      out.push_back(z);
    }
  }
  return out;
}

TEST_F(GroupedGemmOnCuda, AgreesWithTheReference) {
  std::size_t turn = 0;
  for (const Conv2dProblem& z : problems()) {
    ConvolutionCase exact(z, Tier::exact);
    ConvolutionCase bounded(z, turn % 3 == 0   ? Tier::bounded
                               : turn % 3 == 1 ? Tier::offset
                                               : Tier::heavy);
    ++turn;
    for (const Direction direction : kDirections) {
      ASSERT_EQ(support_of(card(), z, direction).reason, "") << z.text();
      EXPECT_EQ(exact.check(card(), direction), "");
      EXPECT_EQ(bounded.check(card(), direction), "");
    }
  }
}

}  // namespace
}  // namespace convscope
