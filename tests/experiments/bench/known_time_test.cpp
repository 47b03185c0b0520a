// SPDX-License-Identifier: Apache-2.0
// known_time_test.cpp: tests the numbers in a benchmark row for an algorithm that sleeps for a
// known time.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "experiments/bench/bench_rows.h"
#include "experiments/bench/operator_contender.h"

namespace convscope {
namespace {

constexpr double kRunMs = 3, kPrepareMs = 1;
constexpr double kNominalFlops = 6e6, kExecutedFlops = 2e6, kBytes = 1e6;

void rest(double ms) { std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms)); }

class Sleeper final : public BenchContender {
 public:
  const char* name() const override { return "sleeper"; }
  Device device() const override { return {}; }
  std::size_t workspace_bytes() const override { return 1000; }
  std::size_t prepared_bytes() const override { return 200; }
  void queue() const override { rest(kRunMs); }
  void prepare() const override { rest(kPrepareMs); }
  void poison() const override {}
};

TEST(BenchRows, AreThoseOfTheTimeThatWasTaken) {
  // With peaks of 1 GFLOP/s and 1 GB/s, the arithmetic takes 2 ms and the memory traffic 1 ms.
  CpuPeaks machine;
  machine.flops = {.one_thread = 1e9, .all_threads = 1e9};
  machine.dram_copy = machine.dram_read = {.one_thread = 1e9, .all_threads = 1e9};
  BenchSettings settings{.min_seconds = 0.02};
  settings.peaks = machine;
  BenchRows rows(settings, kNominalFlops, kBytes);
  rows.add(std::make_unique<Sleeper>(), {.flops = kExecutedFlops, .bytes = kBytes}, true,
           [](BenchContender& one) {
             return one.check([] { return Judgement{.error_ratio = 0.5, .wrong = ""}; });
           });
  const std::vector<BenchRow> out = rows.measured();
  ASSERT_EQ(out.size(), 1u);
  const BenchRow& row = out[0];
  EXPECT_GE(row.time.min_ms, kRunMs);
  EXPECT_GE(row.time.median_ms, row.time.min_ms);
  EXPECT_GE(row.prepare_ms, kPrepareMs);
  EXPECT_LT(row.prepare_ms, row.time.median_ms);
  const double median_s = 1e-3 * row.time.median_ms;
  EXPECT_NEAR(row.gflops_effective, 1e-9 * kNominalFlops / median_s, 1e-9);
  EXPECT_NEAR(row.gflops_executed, 1e-9 * kExecutedFlops / median_s, 1e-9);
  EXPECT_NEAR(row.roofline_percent, 100 * 2e-3 / median_s, 1e-6);
  EXPECT_LE(row.roofline_percent, 100 * 2 / kRunMs);
  EXPECT_EQ(row.workspace_bytes, 1200u);
  EXPECT_EQ(row.prepared_bytes, 200u);
  EXPECT_EQ(row.error_ratio, 0.5);
}

}  // namespace
}  // namespace convscope
