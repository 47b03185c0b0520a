// SPDX-License-Identifier: Apache-2.0
// exchange_bench.h: the time of a sum over processes by its size, and the latency and rate with
// which the model of `convscope explain --ranks` reproduces it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "experiments/explain/ranks/sum_model.h"
#include "framework/distributed/process_group.h"

namespace convscope {

struct ExchangeBenchOptions {
  SumOrder order = SumOrder::any;
  double min_seconds = 0.2;  // for each size
  int least_samples = 10;
  int most_samples = 2000;
  std::int64_t most_bytes = std::int64_t{64} << 20;
};

struct ExchangeRow {
  std::int64_t bytes = 0;
  int samples = 0;
  double median_s = 0, min_s = 0;  // the process waits for the sum
  double beside_s = 0;             // median while a thread of the process computes
};

// Measures sums of 64, 256, 1024, ... bytes up to most_bytes. Every process calls it; a time is
// that of the slowest process, from the moment all have arrived. Each size is timed while the
// process waits and while it computes: the exchanging thread may find no free core, and it sleeps
// between polls while nobody waits.
CONVSCOPE_API std::vector<ExchangeRow> bench_exchange(ProcessGroup& group,
                                                      const ExchangeBenchOptions& options);

// Returns the straight line through the medians, with least squares of relative errors, as a link:
// the intercept is the latency of log2(P) steps, the slope is what a ring sends (for a tree:
// log2(P) steps).
CONVSCOPE_API Link fitted_link(const std::vector<ExchangeRow>& rows, int processes, SumOrder order);

// Returns a table, and the link in the format of `explain`. one_host: all processes share a host.
CONVSCOPE_API std::string exchange_text(const std::vector<ExchangeRow>& rows, int processes,
                                        bool one_host, SumOrder order);

}  // namespace convscope
