// SPDX-License-Identifier: Apache-2.0
// exchange_bench.h: how long a sum over processes takes, by its size, and which latency and rate
// the model of `convscope explain --ranks` needs to say the same.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "experiments/explain/ranks/sum_model.h"
#include "framework/distributed/process_group.h"

namespace convscope {

struct ExchangeBenchOptions {
  SumOrder order = SumOrder::any;
  double min_seconds = 0.2;  // of each size
  int least_samples = 10;
  int most_samples = 2000;
  std::int64_t most_bytes = std::int64_t{64} << 20;
};

struct ExchangeRow {
  std::int64_t bytes = 0;
  int samples = 0;
  double median_s = 0, min_s = 0;  // the process waits for the sum
  double beside_s = 0;             // median beside a thread of the process that computes
};

// Sizes 64 bytes, 256, 1024, ... Every process calls it; a time is that of the slowest process,
// from the moment at which all have come. The first size that is larger than most_bytes is not
// timed. Waited for and beside work, because the thread that exchanges may find no free core, and
// sleeps between its looks while nobody waits.
CONVSCOPE_API std::vector<ExchangeRow> bench_exchange(ProcessGroup& group,
                                                      const ExchangeBenchOptions& options);

// The straight line through the medians, with the least squares of relative errors, as a link: its
// beginning is the latency of log2(P) steps, its slope what a ring (of a tree: log2(P) steps)
// sends.
CONVSCOPE_API Link fitted_link(const std::vector<ExchangeRow>& rows, int processes, SumOrder order);

// A table, and the link as a word of `explain`. one_host: all processes share one.
CONVSCOPE_API std::string exchange_text(const std::vector<ExchangeRow>& rows, int processes,
                                        bool one_host, SumOrder order);

}  // namespace convscope
