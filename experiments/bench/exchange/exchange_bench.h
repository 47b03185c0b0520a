// SPDX-License-Identifier: Apache-2.0
// exchange_bench.h: measures the time of an all-reduce sum over processes, for messages of several
// sizes. Fits the latency and bandwidth of the model of `convscope explain --ranks` to these times.
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
  double median_s = 0, min_s = 0;  // while the process only waits for the sum
  double beside_s = 0;             // the median while a thread of the process computes
};

// Measures sums of 64, 256, 1024, ... bytes up to most_bytes. Every process calls this function.
// The clock starts when all processes have arrived, and the slowest process determines the time.
// Each size is timed twice: while the main thread of the process waits, and while it computes. The
// thread that exchanges data is slower in the second case: it may find no free core, and it sleeps
// between polls.
CONVSCOPE_API std::vector<ExchangeRow> bench_exchange(ProcessGroup& group,
                                                      const ExchangeBenchOptions& options);

// Fits a line to the medians (least squares of the relative errors) and returns it as a link. The
// intercept is the latency times log2(P). The slope of a ring is the time per byte; the slope of a
// tree is the time per byte times log2(P).
CONVSCOPE_API Link fitted_link(const std::vector<ExchangeRow>& rows, int processes, SumOrder order);

// Returns a table, and the link in the format of `explain`. `one_host`: all processes run on one
// host.
CONVSCOPE_API std::string exchange_text(const std::vector<ExchangeRow>& rows, int processes,
                                        bool one_host, SumOrder order);

}  // namespace convscope
