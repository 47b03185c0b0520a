// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_weights_cuda_test.cpp: tests the forward pass of implicit_gemm with so many weights
// that the kernel transposes them in shared memory. Tests every type, full and partial blocks of
// channels, and groups.
#include <gtest/gtest.h>

#include "layers/conv2d/algorithm.h"
#include "layers/dispatch/half_problem.h"
#include "tests/support/cuda.h"
#include "tests/support/numerics.h"

namespace convscope {
namespace {

using testing::ConvolutionCase;
using testing::Tier;
using ImplicitGemmWeightsOnCuda = testing::CudaTest;

TEST_F(ImplicitGemmWeightsOnCuda, ManyAreTransposedWithTheNumbersOfTheReference) {
  const Conv2dAlgorithm& algorithm = conv2d_algorithms(DeviceType::cuda).get("implicit_gemm");
  for (const char* text : {
           "n=1,c=96,h=3,w=3,k=80,r=3,s=3,pad=1",            // whole blocks of 32 channels
           "n=1,c=275,h=2,w=2,k=251",                        // remainders of channels, rows, pieces
           "n=1,c=150,h=2,w=3,k=111,r=2,s=2,pad=1",          // an even number of taps
           "n=1,c=208,h=3,w=3,k=160,r=3,s=2,groups=2,pad=1"  // a group after another one
       }) {
    for (const char* type : {"", ",precision=tf32", ",dtype=f16", ",dtype=bf16"}) {
      Conv2dProblem problem = Conv2dProblem::parse(cat(text, type));
      ASSERT_GE(problem.w_shape().numel(), 1 << 16);
      for (int last = 0; last < (is_half(problem.dtype) ? 2 : 1); ++last) {
        if (last == 1) problem = with_nhwc(problem);
        ASSERT_EQ(support_of(algorithm, problem, Direction::forward).reason, "") << problem.text();
        for (const Tier tier : {Tier::exact, Tier::bounded}) {
          ConvolutionCase numbers(problem, tier);
          EXPECT_EQ(numbers.check(algorithm, Direction::forward), "") << problem.text();
        }
      }
    }
  }
}

}  // namespace
}  // namespace convscope
