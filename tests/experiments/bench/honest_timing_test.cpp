// SPDX-License-Identifier: Apache-2.0
// honest_timing_test.cpp: tests that the benchmark detects a call that reuses an earlier result,
// and marks a time that is too short for the work.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "experiments/bench/bench_report.h"
#include "experiments/bench/honest/least_time.h"
#include "experiments/bench/honest/moving_inputs.h"
#include "tests/experiments/plugins/plugin_paths.h"
#include "tests/support/call_program.h"

namespace convscope::testing {
namespace {

using Json = nlohmann::json;

// The problem is small, so each timed sample contains many calls and the textbook loops finish
// quickly.
constexpr const char* kBench =
    "bench conv2d --problem n=1,c=3,h=8,w=8,k=4,r=3,s=3,pad=1 --algorithm cheat --direction "
    "forward --min-time 0.02 --plugin '";

Json row_of(const std::string& cheat, int& code) {
  const TemporaryFolder folder;
  const Called called = call_program(kBench + kCheat + "' --json bench.json", folder.path(),
                                     "CONVSCOPE_MEASURE=off CONVSCOPE_CHEAT=" + cheat);
  code = called.code;
  const Json json = Json::parse(text_of(folder / "bench.json"));
  EXPECT_EQ(json["rows"].size(), 1u) << called.out << called.err;
  return json["rows"][0];
}

TEST(HonestTiming, OfWhoeverFindsYDoneIsThatOfTheWork) {
  int code = -1;
  const Json honest = row_of("none", code);
  ASSERT_EQ(code, 0) << honest;
  EXPECT_EQ(honest["status"], "ok");
  EXPECT_TRUE(honest["impossible"].is_null());
  const Json cheat = row_of("holds_last", code);
  // The algorithm looks for its last result in y. The benchmark overwrites y before each call, so
  // the algorithm must compute again.
  EXPECT_GT(cheat["median_ms"].get<double>(), 0.5 * honest["median_ms"].get<double>());
}

TEST(HonestTiming, FindsWhoeverKeepsResults) {
  for (const char* const cheat : {"by_address", "after_200"}) {
    int code = -1;
    const Json row = row_of(cheat, code);
    EXPECT_EQ(code, 1) << row;
    EXPECT_EQ(row["status"], "wrong") << row;
    EXPECT_TRUE(row["wrong"].get<std::string>().starts_with("in the timed calls: ")) << row;
    EXPECT_TRUE(row["median_ms"].is_null()) << row;
    EXPECT_TRUE(row["gflops_effective"].is_null()) << row;
  }
}

TEST(MovingInputs, KeepTheirNumbersAndShowWhatIsNotWritten) {
  const Conv2dProblem problem{.n = 1, .c = 3, .h = 8, .w = 8, .k = 4, .r = 3, .s = 3};
  const OperandSpecs specs = problem.operands(Direction::forward);
  const Operands operands = random_operands(specs, Device{});
  const auto sorted = [&](std::size_t i) {
    const Tensor& values = operands.in.at(i).values;
    std::vector<float> out(values.data<float>(), values.data<float>() + values.numel());
    std::ranges::sort(out);
    return out;
  };
  const std::vector<float> x = sorted(0), w = sorted(1);
  const Tensor before = operands.in[0].values.clone(), w_before = operands.in[1].values.clone();
  operands.out[0].values.fill(1);
  MovingInputs moving(operands, specs, /*weights=*/false);
  EXPECT_EQ(moving.not_written(), "");
  moving.turn();
  moving.sample();
  moving.run();
  EXPECT_EQ(sorted(0), x);
  const auto differ = [](const Tensor& a, const Tensor& b) {
    return std::memcmp(a.raw_data(), b.raw_data(), static_cast<std::size_t>(a.size_bytes())) != 0;
  };
  EXPECT_TRUE(differ(operands.in[0].values, before));
  EXPECT_FALSE(differ(operands.in[1].values, w_before));
  EXPECT_NE(moving.not_written().find("a timed call did not write element "), std::string::npos);
  MovingInputs both(operands, specs, /*weights=*/true);
  both.turn();
  EXPECT_EQ(sorted(1), w);
  EXPECT_TRUE(differ(operands.in[1].values, w_before));
  operands.out[0].values.fill(1);
  EXPECT_EQ(both.not_written(), "");
}

CpuPeaks machine() {
  CpuPeaks out;
  out.cores = 2;
  out.flops = {.one_thread = 1e11, .all_threads = 2e11};
  out.l2_read = {.one_thread = 1e11, .all_threads = 2e11};
  out.dram_read = {.one_thread = 1e10, .all_threads = 1e10};
  return out;
}

TEST(ImpossibleTime, IsBelowTheArithmeticOrTheBytes) {
  const CpuPeaks here = machine();
  // At the measured peak of 100 GFLOP/s, 100 MFLOP take 1 ms. The check accepts slightly shorter
  // times, because a busy machine may measure too low a peak.
  EXPECT_EQ(impossible_time(here, 1e-3, 1e8, 0, 1), "");
  EXPECT_EQ(impossible_time(here, 0.7e-3, 1e8, 0, 1), "");
  EXPECT_NE(impossible_time(here, 0.6e-3, 1e8, 0, 1).find("measured peak of 1 thread"),
            std::string::npos);
  EXPECT_EQ(impossible_time(here, 0.6e-3, 1e8, 0, 2), "");
  EXPECT_EQ(impossible_time(here, 0.6e-3, 1e8, 0, 8), "") << "8 threads have 2 cores";
  // At 100 GB/s, 100 MB take 1 ms. This bound holds even if the algorithm reports few FLOPs.
  EXPECT_EQ(impossible_time(here, 0.7e-3, 1, 1e8, 1), "");
  EXPECT_NE(impossible_time(here, 0.6e-3, 1, 1e8, 1).find("that a cache delivers"),
            std::string::npos);
  // 10 kB fit into L1.
  EXPECT_EQ(impossible_time(here, 2e-8, 1, 1e4, 1), "");
  EXPECT_NE(impossible_time(here, 1e-8, 1, 1e4, 1), "");
  EXPECT_NE(impossible_time(here, 0, 1, 1, 1), "");
}

TEST(ImpossibleTime, CountsWhatEveryAlgorithmReads) {
  const auto bytes = [](const char* text) { return least_bytes_of(Conv2dProblem::parse(text)); };
  EXPECT_EQ(bytes("n=1,c=2,h=8,w=8,k=4"), 4.0 * (4 * 64 + 8 + 2 * 64));
  // The algorithm reads only every second row.
  EXPECT_EQ(bytes("n=1,c=2,h=8,w=8,k=4,stride=2"), 4.0 * (4 * 16 + 8 + 64));
}

TEST(ImpossibleTime, IsInTheTableTheJsonAndTheExitCode) {
  BenchGroup<Conv2dProblem> group;
  BenchRow row;
  row.algorithm = "mine";
  row.time = summary_of({1e-3});
  EXPECT_FALSE(any_wrong({group}));
  row.impossible = "too fast";
  group.rows = {row};
  EXPECT_TRUE(any_wrong({group}));
  EXPECT_NE(bench_table(group).find("mine: IMPOSSIBLE, its times do not count: too fast"),
            std::string::npos);
  const Json json = Json::parse(bench_json({group}, {}))["rows"][0];
  EXPECT_EQ(json["status"], "impossible");
  EXPECT_EQ(json["impossible"], "too fast");
}

}  // namespace
}  // namespace convscope::testing
