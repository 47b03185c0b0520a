// SPDX-License-Identifier: Apache-2.0
// bench_conv2d_cuda_test.cpp: tests `convscope bench conv2d` on a GPU. For block-sparse weights, it
// checks the results of a sparse and of a dense algorithm in every direction. For half precision in
// NHWC, it checks that the benchmark times the kernels that a training step runs.
#include "experiments/bench/conv2d_bench.h"
#include "layers/dispatch/half_problem.h"
#include "tests/support/cuda.h"

namespace convscope {
namespace {

using BenchConv2dOnCuda = testing::CudaTest;

TEST_F(BenchConv2dOnCuda, ChecksBlocksInEachDirection) {
  Conv2dBenchOptions options;
  options.device = testing::cuda();
  options.least_samples = 1;
  options.min_seconds = 1e-6;
  options.algorithms =
      algorithms_named<Conv2dProblem>("bench conv2d", "block_sparse,direct", options.device);
  const Conv2dProblem problem =
      Conv2dProblem::parse("n=2,c=16,h=6,w=6,k=16,r=3,s=3,pad=1,weights=blocks16x1:30");
  for (const Direction direction : kDirections) {
    const Conv2dBenchGroup group = bench_conv2d(options, problem, direction, [](const auto&) {});
    ASSERT_EQ(group.rows.size(), 2U) << name_of(direction);
    for (const Conv2dBenchRow& row : group.rows) {
      EXPECT_EQ(row.wrong, "") << row.algorithm << ", " << name_of(direction);
      EXPECT_GT(row.error_ratio, 0) << row.algorithm << ", " << name_of(direction);
    }
  }
}

// The problem has the types of a compiled step: w and dw are f32, the images are fp16 or bf16.
TEST_F(BenchConv2dOnCuda, TimesHalfPrecisionAsInAStep) {
  Conv2dBenchOptions options;
  options.device = testing::cuda();
  options.least_samples = 1;
  options.min_seconds = 1e-6;
  options.algorithms = algorithms_named<Conv2dProblem>(
      "bench conv2d", "implicit_gemm,implicit_gemm_tma", options.device);
  const Conv2dProblem half = Conv2dProblem::parse("n=2,c=16,h=6,w=6,k=24,r=3,s=3,pad=1,dtype=bf16");
  const Conv2dProblem problem = with_nhwc(half);
  for (const Direction direction : kDirections) {
    const Conv2dBenchGroup group = bench_conv2d(options, problem, direction, [](const auto&) {});
    ASSERT_EQ(group.rows.size(), 2U) << name_of(direction);
    for (const Conv2dBenchRow& row : group.rows) {
      EXPECT_EQ(row.wrong, "") << row.algorithm << ", " << name_of(direction);
      EXPECT_GT(row.error_ratio, 0) << row.algorithm << ", " << name_of(direction);
    }
  }
  Conv2dProblem half_weights = problem;
  half_weights.types->w = DType::f16;
  EXPECT_THROW(check_can_be_timed(half_weights, options.device), Error);
  EXPECT_THROW(check_can_be_timed(problem, Device{}), Error);
}

}  // namespace
}  // namespace convscope
