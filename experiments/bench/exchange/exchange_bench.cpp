// SPDX-License-Identifier: Apache-2.0
// exchange_bench.cpp: measures the time of an all-reduce sum over processes, for messages of
// several sizes.
#include "experiments/bench/exchange/exchange_bench.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>

#include "experiments/bench/statistics.h"
#include "experiments/explain/text_layout.h"
#include "framework/distributed/mpi_reducer.h"
#include "framework/tensor.h"

namespace convscope {
namespace {

constexpr std::int64_t kLeastBytes = 64;

using Clock = std::chrono::steady_clock;

// Returns the time of a sum over all processes, in seconds. With `beside`, this thread computes
// during the sum, as the backward pass does; otherwise it waits.
double seconds_of_sum(ProcessGroup& group, MpiReducer& reducer, const Tensor& data, bool beside) {
  group.most(0);  // all have arrived
  std::atomic<bool> is_there{false};
  Clock::time_point end;
  const Clock::time_point start = Clock::now();
  reducer.sum(data, 1.0f / static_cast<float>(group.size()));  // a mean, so the numbers stay finite
  const ProcessGroup::Ticket ticket = group.queue([&] {
    end = Clock::now();
    is_there = true;
  });
  while (beside && !is_there) {
  }
  group.wait(ticket);
  return group.most(std::chrono::duration<double>(end - start).count());
}

// All processes see the same times, so all stop together.
std::vector<double> sampled_sums(ProcessGroup& group, MpiReducer& reducer, const Tensor& data,
                                 bool beside, const ExchangeBenchOptions& options) {
  for (int i = 0; i < 3; ++i) seconds_of_sum(group, reducer, data, beside);
  std::vector<double> seconds;
  double total = 0;
  while (std::ssize(seconds) < options.least_samples ||
         (total < options.min_seconds && std::ssize(seconds) < options.most_samples)) {
    seconds.push_back(seconds_of_sum(group, reducer, data, beside));
    total += seconds.back();
  }
  std::ranges::sort(seconds);
  return seconds;
}

int doublings(int processes) {
  int out = 0;
  while ((1 << out) < processes) ++out;
  return out;
}

std::string size_text(std::int64_t bytes) {
  if (bytes >= 1 << 20) return cat(bytes >> 20, " MiB");
  return bytes >= 1 << 10 ? cat(bytes >> 10, " KiB") : cat(bytes, " B");
}

}  // namespace

std::vector<ExchangeRow> bench_exchange(ProcessGroup& group, const ExchangeBenchOptions& options) {
  std::vector<ExchangeRow> out;
  MpiReducer reducer(group, options.order);
  for (std::int64_t bytes = kLeastBytes; bytes <= options.most_bytes; bytes *= 4) {
    const Tensor data = Tensor::full({bytes / 4}, 1.0, DType::f32, Device{});
    const auto beside = sampled_sums(group, reducer, data, /*beside=*/true, options);
    const auto waited = sampled_sums(group, reducer, data, /*beside=*/false, options);
    out.push_back({.bytes = bytes,
                   .samples = static_cast<int>(waited.size()),
                   .median_s = quantile(waited, 0.5),
                   .min_s = waited.front(),
                   .beside_s = quantile(beside, 0.5)});
  }
  return out;
}

// Fits a + b n with the least sum of ((a + b n) / t - 1)^2: two equations in a and b. Both are
// clipped at 0, because noise can make them negative.
Link fitted_link(const std::vector<ExchangeRow>& rows, int processes, SumOrder order) {
  double s11 = 0, s1n = 0, snn = 0, r1 = 0, rn = 0;
  for (const ExchangeRow& row : rows) {
    const double one = 1 / row.median_s;
    const double n = static_cast<double>(row.bytes) / row.median_s;
    s11 += one * one;
    s1n += one * n;
    snn += n * n;
    r1 += one;
    rn += n;
  }
  const double determinant = s11 * snn - s1n * s1n;
  CONVSCOPE_CHECK(rows.size() >= 2 && determinant > 0 && processes > 1, "bench exchange",
                  "expected times of two sizes at least, of 2 processes at least, got ",
                  rows.size(), " of ", processes);
  double a = (r1 * snn - rn * s1n) / determinant;
  double b = (rn * s11 - r1 * s1n) / determinant;
  if (a < 0) {
    a = 0;
    b = rn / snn;
  } else if (b <= 0) {
    b = 1e-15;
    a = r1 / s11;
  }
  const double steps = doublings(processes);
  const double sent =
      order == SumOrder::tree ? steps : 2.0 * (processes - 1) / static_cast<double>(processes);
  return {.bytes_per_s = sent / b, .latency_s = a / steps};
}

std::string exchange_text(const std::vector<ExchangeRow>& rows, int processes, bool one_host,
                          SumOrder order) {
  const Link link = fitted_link(rows, processes, order);
  const Cluster cluster{.between = link};
  std::vector<std::vector<std::string>> cells = {
      {"sum of", "median us", "min us", "model us", "MB/s", "while computing us", "samples"}};
  for (const ExchangeRow& row : rows) {
    const auto bytes = static_cast<double>(row.bytes);
    cells.push_back({size_text(row.bytes), number_text("%.1f", 1e6 * row.median_s),
                     number_text("%.1f", 1e6 * row.min_s),
                     number_text("%.1f", 1e6 * sum_seconds(bytes, processes, cluster, order)),
                     number_text("%.0f", 1e-6 * bytes / row.median_s),
                     number_text("%.1f", 1e6 * row.beside_s), std::to_string(row.samples)});
  }
  const std::string words = link_words(link);
  return columns_text(cells, 0, {0, 1, 2, 3, 4, 5, 6}) +
         wrapped_text(
             cat("\nmodel: ", link_text(link), "; for convscope explain CONFIG --ranks N: ",
                 one_host ? cat("--ranks-per-host ", processes, " --inside ", words)
                          : cat("--network ", words)),
             0);
}

}  // namespace convscope
