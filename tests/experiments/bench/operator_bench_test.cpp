// SPDX-License-Identifier: Apache-2.0
// operator_bench_test.cpp: tests that bench_operator() makes benchmark rows for an operator that
// only the tests define.
#include <gtest/gtest.h>

#include "experiments/bench/bench_rows.h"
#include "tests/layers/dispatch/correlation1d.h"

namespace convscope::testing {
namespace {

const BenchProgress kQuiet = [](const std::string&) {};

BenchGroup<Correlation1dProblem> rows_of(const Correlation1dProblem& problem,
                                         Direction direction = Direction::forward) {
  register_correlation();
  return bench_operator(BenchSettings{.min_seconds = 0.001}, problem, direction, kQuiet);
}

TEST(OperatorBench, GivesRowsOfCheckedAndTimedAlgorithms) {
  const Correlation1dProblem dense{.n = 2, .c = 4, .length = 64, .k = 8, .taps = 5};
  Correlation1dProblem integers = dense;
  integers.dtype = DType::i8;
  integers.types = OperandTypes{DType::i8, DType::i8, DType::i32, DType::f32};
  Correlation1dProblem sparse = dense;
  ASSERT_TRUE(WeightFormat::parse("blocks4x5:3", sparse.weight_format));
  for (const Correlation1dProblem& problem : {dense, integers, sparse}) {
    const auto group = rows_of(problem);
    ASSERT_EQ(group.rows.size(), 1u) << problem.text();
    const BenchRow& row = group.rows[0];
    EXPECT_EQ(row.algorithm, "sliding");
    EXPECT_TRUE(row.auto_choice);
    EXPECT_EQ(row.wrong, "") << problem.text();
    // The scales of the integer operands are multiples of 2^-8, so scaled sums stay exact.
    EXPECT_EQ(row.error_ratio > 0, !problem.types) << problem.text();
    EXPECT_LE(row.error_ratio, 1.0) << problem.text();
    EXPECT_GE(row.time.samples, 5);
    EXPECT_NEAR(row.gflops_effective, problem.nominal_flops() / (row.time.median_ms * 1e6),
                1e-9 * row.gflops_effective);
    const bool prepares = sliding_prepares(problem);
    EXPECT_EQ(row.prepared_bytes, prepares ? 8 * 4 * 5 * sizeof(float) : 0u);
    EXPECT_EQ(row.workspace_bytes, 8 * sizeof(float) + row.prepared_bytes);
    EXPECT_EQ(row.prepare_ms > 0, prepares);
  }
}

TEST(OperatorBench, NamesWhoRefusesAndSkipsEmptyProblems) {
  const auto weights = rows_of({}, Direction::backward_weight);
  EXPECT_TRUE(weights.rows.empty());
  ASSERT_EQ(weights.refusals.size(), 1u);
  EXPECT_EQ(weights.refusals[0].name, "sliding");
  EXPECT_EQ(weights.refusals[0].reason, "does not compute backward_weight");
  EXPECT_EQ(rows_of({.n = 0}).skipped, "a batch of no samples leaves nothing to time");
}

TEST(OperatorBench, AWrongAlgorithmIsNotTimed) {
  register_correlation();
  const Correlation1dProblem problem{.n = 1, .c = 2, .length = 32, .k = 4, .taps = 3};
  CorrelationAlgorithm wrong = sliding_algorithm();
  wrong.forward = [](const CorrelationForwardArgs& args) {
    sliding_forward(args);
    static_cast<float*>(args.y)[9] = std::numeric_limits<float>::quiet_NaN();
  };
  const Operands operands = random_operands(problem.operands(Direction::forward), Device{});
  const AlgorithmOracle<Correlation1dProblem> oracle(problem, Direction::forward, operands);
  BenchRows rows(BenchSettings{.min_seconds = 0.001}, problem.nominal_flops(), 1);
  rows.add(std::make_unique<OperatorContender<Correlation1dProblem>>(wrong, problem,
                                                                     Direction::forward, operands),
           {}, false, [&](BenchContender& one) {
             return one.check([&] { return oracle.judge(operands, wrong.error_growth); });
           });
  const std::vector<BenchRow> out = rows.measured();
  ASSERT_EQ(out.size(), 1u);
  EXPECT_NE(out[0].wrong.find("at element 9 of y, got nan"), std::string::npos) << out[0].wrong;
  EXPECT_EQ(out[0].time.samples, 0);
}

}  // namespace
}  // namespace convscope::testing
