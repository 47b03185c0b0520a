// SPDX-License-Identifier: Apache-2.0
// sum_model_test.cpp: tests predicted times of sums over processes (all-reduce) against values
// computed by hand.
#include "experiments/explain/ranks/sum_model.h"

#include <gtest/gtest.h>

#include <limits>

namespace convscope {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// 1 MB per millisecond, 10 us before the first byte.
Cluster one_per_host() { return {.between = {1e9, 10e-6}}; }

TEST(SumModel, TakesNothingForOneProcess) {
  for (const SumOrder order : {SumOrder::any, SumOrder::tree}) {
    EXPECT_EQ(sum_seconds(1e6, 1, one_per_host(), order), 0);
    const ExchangeTime time = exchange_time({{0.5, 1e6}, {1, 1e6}}, 1, 1, one_per_host(), order);
    EXPECT_EQ(time.busy_s, 0);
    EXPECT_EQ(time.exposed_s, 0);
  }
}

TEST(SumModel, ComputesRingAndDoublingByHand) {
  // 6 steps of 10 us + 1 MB / 4 = 250 us
  EXPECT_DOUBLE_EQ(ring_seconds(1e6, 4, one_per_host()), 6 * 260e-6);
  // 2 steps of 10 us + 1 ms
  EXPECT_DOUBLE_EQ(doubling_seconds(1e6, 4, one_per_host()), 2 * 1010e-6);
  EXPECT_DOUBLE_EQ(doubling_seconds(1e6, 5, one_per_host()), 3 * 1010e-6);
  EXPECT_DOUBLE_EQ(sum_seconds(1e6, 4, one_per_host(), SumOrder::any), 6 * 260e-6);
  EXPECT_DOUBLE_EQ(sum_seconds(1e6, 4, one_per_host(), SumOrder::tree), 2 * 1010e-6);
  // For a short message, recursive doubling is faster: it takes two steps of 10 us + 0.1 us. The
  // ring would take six steps of 10 us + 0.025 us.
  EXPECT_DOUBLE_EQ(sum_seconds(100, 4, one_per_host(), SumOrder::any), 2 * 10.1e-6);
}

TEST(SumModel, SendsInsideAHostByItsOwnLink) {
  const Cluster cluster{.between = {1e9, 10e-6}, .inside = {4e9, 1e-6}, .per_host = 4};
  EXPECT_DOUBLE_EQ(ring_seconds(4e6, 4, cluster), 6 * (1e-6 + 250e-6));
  // In each of the 14 steps, 4 MB / 8 pass through the link between the two hosts, which is slower
  // than the links inside a host.
  EXPECT_DOUBLE_EQ(ring_seconds(4e6, 8, cluster), 14 * (10e-6 + 500e-6));
  // Recursive doubling has two steps inside a host. In the third step, the four processes of a host
  // send through its one link to the other host at the same time.
  EXPECT_DOUBLE_EQ(doubling_seconds(4e6, 8, cluster), 2 * (1e-6 + 1e-3) + (10e-6 + 16e-3));
}

TEST(ExchangeModel, ExposesWhatIsLeftOfOneBucket) {
  // A sum over 2 processes takes 10 us + 1 ms. The backward pass lasts 2.5 ms and its gradients are
  // ready at 2 ms, so the sum ends 0.51 ms after the backward pass.
  const ExchangeTime time = exchange_time({{2e-3, 1e6}}, 2.5e-3, 2, one_per_host(), SumOrder::any);
  EXPECT_DOUBLE_EQ(time.busy_s, 1010e-6);
  EXPECT_NEAR(time.exposed_s, 510e-6, 1e-12);
  EXPECT_EQ(exchange_time({{0, 1e6}}, 2.5e-3, 2, one_per_host(), SumOrder::any).exposed_s, 0);
}

TEST(ExchangeModel, SendsOneBucketAfterTheOther) {
  // Each of three sums takes 1.01 ms. The first lasts from 0 to 1.01 ms. The second waits for the
  // first and ends at 2.02 ms. The third waits for its gradients and lasts from 3 to 4.01 ms.
  const std::vector<Departure> buckets = {{0, 1e6}, {0.5e-3, 1e6}, {3e-3, 1e6}};
  const ExchangeTime time = exchange_time(buckets, 3e-3, 2, one_per_host(), SumOrder::any);
  EXPECT_DOUBLE_EQ(time.busy_s, 3 * 1010e-6);
  EXPECT_NEAR(time.exposed_s, 1010e-6, 1e-12);
  // If all gradients become ready at the end of the backward pass, the three sums cannot overlap
  // with it.
  const ExchangeTime late = exchange_time({{3e-3, 1e6}, {3e-3, 1e6}, {3e-3, 1e6}}, 3e-3, 2,
                                          one_per_host(), SumOrder::any);
  EXPECT_NEAR(late.exposed_s, 3 * 1010e-6, 1e-12);
}

TEST(ExchangeModel, KnowsNoLatencyAndNoRate) {
  const std::vector<Departure> buckets = {{1e-3, 1e6}, {2e-3, 2e6}};
  const Cluster no_latency{.between = {1e9, 0}};
  EXPECT_NEAR(exchange_time(buckets, 2e-3, 2, no_latency, SumOrder::any).exposed_s, 2e-3, 1e-12);
  const Cluster no_rate{.between = {kInfinite, 10e-6}};
  EXPECT_NEAR(exchange_time(buckets, 2e-3, 2, no_rate, SumOrder::any).exposed_s, 10e-6, 1e-12);
  const Cluster neither{.between = {kInfinite, 0}};
  EXPECT_EQ(exchange_time(buckets, 2e-3, 64, neither, SumOrder::any).busy_s, 0);
  EXPECT_EQ(exchange_time(buckets, 2e-3, 64, neither, SumOrder::any).exposed_s, 0);
}

TEST(ExchangeModel, GrowsWithProcessesAndBytesAndShrinksWithTheRate) {
  double before = 0;
  for (int processes = 1; processes <= 1024; processes *= 2) {
    for (const SumOrder order : {SumOrder::any, SumOrder::tree}) {
      const double now = sum_seconds(1e6, processes, one_per_host(), order);
      EXPECT_GE(sum_seconds(2e6, processes, one_per_host(), order), now);
      EXPECT_LE(sum_seconds(1e6, processes, {.between = {2e9, 10e-6}}, order), now);
      EXPECT_LE(sum_seconds(1e6, processes, {.between = {1e9, 5e-6}}, order), now);
    }
    const double now = sum_seconds(1e6, processes, one_per_host(), SumOrder::any);
    EXPECT_GE(now, before);
    before = now;
  }
}

}  // namespace
}  // namespace convscope
