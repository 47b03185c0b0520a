// SPDX-License-Identifier: Apache-2.0
// exchange_bench_test.cpp: recovers latency and rate from times computed for a link.
#include "experiments/bench/exchange/exchange_bench.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace convscope {
namespace {

std::vector<ExchangeRow> rows_of(const Link& link, double steps, double sent) {
  std::vector<ExchangeRow> out;
  for (std::int64_t bytes = 64; bytes <= 1 << 24; bytes *= 4) {
    const double seconds =
        steps * link.latency_s + sent * static_cast<double>(bytes) / link.bytes_per_s;
    out.push_back({.bytes = bytes, .samples = 10, .median_s = seconds, .min_s = seconds});
  }
  return out;
}

TEST(ExchangeBench, FindsTheLinkOfExactTimes) {
  const Link link{.bytes_per_s = 2e9, .latency_s = 40e-6};
  const auto expect_link = [&](const Link& found) {
    EXPECT_NEAR(found.bytes_per_s, link.bytes_per_s, 1);
    EXPECT_NEAR(found.latency_s, link.latency_s, 1e-12);
  };
  expect_link(fitted_link(rows_of(link, 1, 1), 2, SumOrder::any));
  expect_link(fitted_link(rows_of(link, 2, 1.5), 4, SumOrder::any));  // 2 (4-1) / 4
  expect_link(fitted_link(rows_of(link, 2, 2), 4, SumOrder::tree));
}

TEST(ExchangeBench, FindsNoLatencyBelowNothing) {
  const std::vector<ExchangeRow> rows = {{.bytes = 1000, .median_s = 1e-6},
                                         {.bytes = 2000, .median_s = 3e-6}};
  const Link found = fitted_link(rows, 2, SumOrder::any);
  EXPECT_EQ(found.latency_s, 0);
  EXPECT_GT(found.bytes_per_s, 0);
}

TEST(ExchangeBench, EndsWithWordsOfExplain) {
  const auto rows = rows_of({.bytes_per_s = 2e9, .latency_s = 40e-6}, 1, 1);
  EXPECT_NE(exchange_text(rows, 2, /*one_host=*/false, SumOrder::any).find("2.00GB,40.0us"),
            std::string::npos);
  EXPECT_NE(exchange_text(rows, 2, /*one_host=*/true, SumOrder::any).find("--ranks-per-host 2"),
            std::string::npos);
  EXPECT_ERROR(ErrorKind::kInvalid, "expected times of two sizes",
               fitted_link({rows[0]}, 2, SumOrder::any));
}

}  // namespace
}  // namespace convscope
