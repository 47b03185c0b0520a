// SPDX-License-Identifier: Apache-2.0
// bench_numbers_test.cpp: tests the helpers of benchmarks: quantiles, lists of problems,
// interleaved timing, the roofline, and the check of sampled results.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "experiments/bench/bench_report.h"
#include "experiments/bench/conv2d_bench.h"
#include "experiments/bench/interleave.h"
#include "experiments/bench/problem_list.h"
#include "experiments/bench/sampled_reference.h"
#include "experiments/bench/statistics.h"
#include "layers/conv2d/algorithm.h"
#include "layers/dispatch/run.h"
#include "tests/support/cases.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"
#include "tests/support/temporary_folder.h"

namespace convscope {
namespace {

TEST(BenchStatistics, QuantilesLieBetweenTheSamples) {
  const TimingSummary summary = summary_of({0.005, 0.001, 0.003, 0.002, 0.004});
  EXPECT_EQ(summary.samples, 5);
  EXPECT_DOUBLE_EQ(summary.median_ms, 3.0);
  EXPECT_DOUBLE_EQ(summary.min_ms, 1.0);
  EXPECT_DOUBLE_EQ(summary.p10_ms, 1.4);
  EXPECT_DOUBLE_EQ(summary.p90_ms, 4.6);
  EXPECT_DOUBLE_EQ(summary_of({0.001, 0.003}).median_ms, 2.0);
  EXPECT_EQ(summary_of({}).samples, 0);
  EXPECT_NEAR(geometric_mean({0.5, 2, 4, 0.25}), 1.0, 1e-12);
}

TEST(BenchProblems, AFileHasOneProblemInALineAndRemarks) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder / "good.txt") << "# a remark\n\nn=2,c=3,h=4,w=5,k=6\r\nh=9,w=9,r=3,s=3";
  const auto problems = problems_of_file(folder / "good.txt");
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(problems[0].k, 6);
  EXPECT_EQ(problems[1].r, 3);
  std::ofstream(folder / "empty.txt") << "# nothing\n";
  EXPECT_ERROR(ErrorKind::kInvalid, "expected at least one problem",
               problems_of_file(folder / "empty.txt"));
  std::ofstream(folder / "bad.txt") << "n=1\nn=1,hh=3\n";
  EXPECT_ERROR(ErrorKind::kInvalid, "bad.txt:2: ", problems_of_file(folder / "bad.txt"));
  EXPECT_ERROR(ErrorKind::kIo, "No such file", problems_of_file(folder / "none.txt"));
  EXPECT_ERROR(ErrorKind::kIo, "readable", problems_of_file(folder.path()));
}

TEST(BenchProblems, DirectionsAreAllOrSomeOfThree) {
  EXPECT_EQ(parse_directions("all").size(), 3u);
  const auto two = parse_directions("backward_weight,forward");
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0], Direction::forward);
  EXPECT_EQ(two[1], Direction::backward_weight);
  EXPECT_ERROR(ErrorKind::kInvalid, "got 'foward'; did you mean 'forward'?",
               parse_directions("foward"));
  EXPECT_ERROR(ErrorKind::kInvalid, "got ''", parse_directions("forward,"));
  EXPECT_ERROR(ErrorKind::kInvalid, "got 'all'", parse_directions("forward,all"));
}

TEST(BenchAlgorithms, AreNamedOrAllButTheOracleAndTheLessons) {
  const auto all = algorithms_named<Conv2dProblem>("bench conv2d", "all", Device{});
  std::size_t left_out = 1;  // the reference
  for (const std::string& name : conv2d_algorithms(DeviceType::cpu).names()) {
    if (name.ends_with("_lesson")) ++left_out;
  }
  EXPECT_GT(left_out, 1u);
  EXPECT_EQ(all.size() + left_out, conv2d_algorithms(DeviceType::cpu).names().size());
  EXPECT_EQ(algorithms_named<Conv2dProblem>("bench conv2d", "winograd_lesson", Device{}).size(),
            1u);
  EXPECT_EQ(
      algorithms_named<Conv2dProblem>("bench conv2d", "reference,im2col_gemm,reference", Device{})
          .size(),
      2u);
  EXPECT_ERROR(ErrorKind::kUnavailable, "got 'im2col_gem'; did you mean 'im2col_gemm'?",
               algorithms_named<Conv2dProblem>("bench conv2d", "im2col_gem", Device{}));
}

// Each run records its name.
std::vector<TimedThing> noting_things(std::string& calls, std::initializer_list<double> estimates) {
  std::vector<TimedThing> things;
  char name = 'a';
  for (const double estimate : estimates) {
    things.push_back(
        {.run = [&calls, name] { calls += name; }, .estimate_seconds = estimate, .seconds = {}});
    ++name;
  }
  return things;
}

TEST(BenchTiming, ThingsTakeTurnsAndFillTheirBudget) {
  std::string calls;
  auto things = noting_things(calls, {0.01, 0.04});
  time_interleaved(things, {.min_seconds = 0.4, .least_samples = 3});
  EXPECT_EQ(things[0].seconds.size(), 40u);
  EXPECT_EQ(things[1].seconds.size(), 10u);
  // time_interleaved() lets the functions a and b take turns. In a turn, one function runs once
  // uncounted and twice counted. Function b is slower and has fewer turns, which are spread over
  // the whole measurement.
  EXPECT_EQ(calls.substr(0, 15), "aaaaaaaaaaaabbb");
  EXPECT_TRUE(calls.ends_with("bbb"));
  EXPECT_EQ(std::ranges::count(calls, 'b'), 15);
}

TEST(BenchTiming, LongRunsAreTimedAtLeastThatOften) {
  std::string calls;
  auto things = noting_things(calls, {10.0, 20.0});
  time_interleaved(things, {.min_seconds = 0.1, .least_samples = 3});
  EXPECT_EQ(calls, "ababab");
}

TEST(BenchTiming, ColdRunsHaveNoWarmUpAndNoRepeats) {
  std::string calls;
  auto things = noting_things(calls, {1e-6, 1e-6});
  time_interleaved(things, {.min_seconds = 3e-6, .least_samples = 2, .cold = true});
  EXPECT_EQ(calls, "ababab");
  // Flushing the caches takes long, however short a run is.
  time_interleaved(things, {.min_seconds = 10, .least_samples = 2, .cold = true});
  EXPECT_EQ(calls.size(), 6u + 2 * 40);
}

TEST(BenchTiming, ShortRunsAreRepeatedWithinASample) {
  std::string calls;
  auto things = noting_things(calls, {1.5e-6});
  time_interleaved(things, {.min_seconds = 1e-6, .least_samples = 4});
  EXPECT_EQ(things[0].seconds.size(), 4u);
  EXPECT_EQ(calls.size(), 1u + 4 * 14);  // 20 us
}

// All samples together cannot have taken longer than the test did.
TEST(BenchTiming, ASampleIsTheTimeOfOneRun) {
  int runs = 0;
  std::vector<TimedThing> things(1);
  things[0].estimate_seconds = 1e-6;
  things[0].run = [&] {
    ++runs;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  };
  const auto begin = std::chrono::steady_clock::now();
  time_interleaved(things, {.min_seconds = 1e-6, .least_samples = 4});
  const std::chrono::duration<double> all = std::chrono::steady_clock::now() - begin;
  const auto samples = static_cast<double>(things[0].seconds.size());
  ASSERT_GT(runs, 2 * samples);  // several in a sample
  double sum = 0;
  for (const double seconds : things[0].seconds) sum += seconds * (runs - 1) / samples;
  EXPECT_GE(sum, (runs - 1) * 200e-6);
  EXPECT_LE(sum, all.count());
}

// The printed table has two derived columns: the ratio to the baseline's time, and the workspace in
// MiB.
TEST(BenchTable, HoldsTheRatioToTheBaselineAndMebibytes) {
  Conv2dBenchGroup group;
  group.problem = Conv2dProblem::parse("n=1,c=1,h=8,w=8,k=1,r=3,s=3");
  BenchRow row;
  row.algorithm = "ours";
  row.time = {.samples = 9, .median_ms = 2, .p10_ms = 1.5, .p90_ms = 2.5, .min_ms = 1};
  row.workspace_bytes = 3 << 20;
  group.rows = {row};
  BaselineBenchRow baseline;
  baseline.algorithm = "theirs";
  baseline.time = {.samples = 9, .median_ms = 5, .p10_ms = 4.5, .p90_ms = 6, .min_ms = 4};
  group.baseline_rows = {baseline};
  const std::string text = bench_table(group);
  for (const char* part : {"2.50x", "4.00x", "3.00"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  EXPECT_NE(bench_summary({group}).find("2.50x"), std::string::npos) << bench_summary({group});
}

TEST(BenchRoofline, IsTheSlowerOfArithmeticAndMemory) {
  CpuPeaks machine;
  machine.cores = 4;
  machine.flops = {100e9, 360e9};
  machine.dram_copy = {10e9, 20e9};
  machine.l2_copy = {100e9, 400e9};
  machine.l3_copy = {50e9, 150e9};
  machine.l2_bytes = 1 << 20;
  machine.l3_bytes = 32 << 20;
  EXPECT_DOUBLE_EQ(roofline_seconds(machine, 1e9, 1e6, 1, false), 0.01);
  EXPECT_DOUBLE_EQ(roofline_seconds(machine, 1e9, 1e6, 2, false), 0.005);
  EXPECT_DOUBLE_EQ(roofline_seconds(machine, 1e9, 1e6, 4, false), 1e9 / 360e9);
  EXPECT_DOUBLE_EQ(roofline_seconds(machine, 1e9, 1e6, 64, false), 1e9 / 360e9);
  EXPECT_DOUBLE_EQ(roofline_seconds(machine, 1, 1e6, 1, false), 1e-5);   // in L2
  EXPECT_DOUBLE_EQ(roofline_seconds(machine, 1, 10e6, 1, false), 2e-4);  // in L3
  EXPECT_DOUBLE_EQ(roofline_seconds(machine, 1, 1e9, 4, false), 0.05);   // in DRAM
  EXPECT_DOUBLE_EQ(roofline_seconds(machine, 1, 1e6, 1, true), 1e-4);    // flushed
}

// ---- the check ---------------------------------------------------------------------------------

struct Computed {
  Tensor first, second, output;
  Conv2dInputs inputs() const { return {first.data<float>(), second.data<float>()}; }
};

Computed computed(const Conv2dProblem& problem, Direction direction) {
  const bool data = direction == Direction::backward_data;
  const bool weight = direction == Direction::backward_weight;
  Computed out{testing::normal(data ? problem.y_shape() : problem.x_shape(), DType::f32, 1),
               testing::normal(weight ? problem.y_shape() : problem.w_shape(), DType::f32, 2),
               Tensor::empty(output_shape(problem, direction))};
  const Conv2dAlgorithm& algorithm = conv2d_algorithms(DeviceType::cpu).get("im2col_gemm");
  const Scratch<Conv2dProblem> scratch(algorithm, problem, direction, {});
  const void *const a = out.first.raw_data(), *const b = out.second.raw_data();
  if (direction == Direction::forward) {
    algorithm.forward({problem,
                       a,
                       b,
                       nullptr,
                       out.output.raw_data(),
                       scratch.workspace(),
                       {},
                       scratch.prepare(b)});
  } else if (data) {
    algorithm.backward_data(
        {problem, a, b, out.output.raw_data(), scratch.workspace(), scratch.prepare(b)});
  } else {
    algorithm.backward_weight({problem, a, b, out.output.raw_data(), false, scratch.workspace()});
  }
  return out;
}

TEST(SampledReference, AcceptsRightResultsOfEveryShapeAndDirection) {
  for (const Conv2dProblem& problem : testing::shapes_of("edge_cases")) {
    if (problem.n == 0) continue;
    for (const Direction direction : kDirections) {
      const Computed one = computed(problem, direction);
      for (const double products : {1e9, 1e3}) {  // all elements, a sample
        const SampledReference reference(problem, direction, one.inputs(), products);
        const auto verdict = reference.judge(one.output.data<float>(), 4);
        EXPECT_EQ(verdict.wrong, "") << problem.text() << " " << name_of(direction);
        EXPECT_LE(verdict.error_ratio, 1.0);
      }
    }
  }
}

TEST(SampledReference, RefusesOneWrongElementOfASmallResult) {
  const Conv2dProblem problem = Conv2dProblem::parse("n=2,c=4,h=9,w=9,k=6,r=3,s=3,groups=2,pad=1");
  for (const Direction direction : kDirections) {
    const Computed one = computed(problem, direction);
    const SampledReference reference(problem, direction, one.inputs());
    EXPECT_TRUE(reference.complete());
    for (const std::int64_t at :
         {std::int64_t{0}, one.output.numel() - 1, one.output.numel() / 2}) {
      const Tensor wrong = one.output.clone();
      wrong.data<float>()[at] += 1e-3f;
      const auto verdict = reference.judge(wrong.data<float>(), 4);
      EXPECT_GT(verdict.error_ratio, 1.0);
      EXPECT_NE(verdict.wrong.find(cat("element ", at, " of ")), std::string::npos)
          << verdict.wrong;
    }
  }
}

TEST(SampledReference, RefusesAWrongBorderOfALargeResult) {
  const Conv2dProblem problem = Conv2dProblem::parse("n=2,c=8,h=64,w=64,k=16,r=3,s=3,pad=1");
  const Computed one = computed(problem, Direction::forward);
  const SampledReference reference(problem, Direction::forward, one.inputs(), 5e4);
  EXPECT_FALSE(reference.complete());
  EXPECT_EQ(reference.judge(one.output.data<float>(), 4).wrong, "");
  for (std::int64_t row = 0; row < 2 * 16 * 64; ++row) one.output.data<float>()[row * 64 + 63] = 0;
  EXPECT_NE(reference.judge(one.output.data<float>(), 4).wrong, "");
}

TEST(SampledReference, RefusesAnElementThatIsNoNumberWhereverItIs) {
  const Conv2dProblem problem = Conv2dProblem::parse("n=2,c=8,h=64,w=64,k=16,r=3,s=3,pad=1");
  const Computed one = computed(problem, Direction::forward);
  const SampledReference reference(problem, Direction::forward, one.inputs(), 5e4);
  one.output.data<float>()[77777] = std::nanf("");
  EXPECT_NE(reference.judge(one.output.data<float>(), 4).wrong.find("element 77777"),
            std::string::npos);
}

}  // namespace
}  // namespace convscope
