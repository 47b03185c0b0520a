// SPDX-License-Identifier: Apache-2.0
// net_report.h: the output of `convscope bench net`: tables for people, JSON and CSV for programs.
#pragma once

#include <string>
#include <vector>

#include "experiments/bench/net/net_bench.h"

namespace convscope {

struct NetBenchReport {
  std::string net;
  std::string device;
  int threads = 0;
  NetBenchOptions options;
  bool complete = false;  // every case was measured
  std::vector<NetBenchRow> rows;
  // The layers of each case, in the order of `rows`; empty when layers were not requested.
  std::vector<std::vector<NetLayerRow>> layers;
  std::vector<std::vector<NetOpRow>> operations;
};

CONVSCOPE_API std::string net_table(const std::vector<NetBenchRow>& rows);
// Returns a table of the layers of one case, and compares their total time with the network's time.
CONVSCOPE_API std::string net_layer_table(const NetBenchRow& row,
                                          const std::vector<NetLayerRow>& layers);
// Returns a table of the compiled case's operations with times; "" when there is none.
CONVSCOPE_API std::string net_operation_table(const NetBenchRow& row,
                                              const std::vector<NetOpRow>& operations);
// Returns {"format", "machine", "settings", "rows": [{..., "layers": [...], "operations": [...]}]}
CONVSCOPE_API std::string net_json(const NetBenchReport& report);
// Returns the rows of the JSON without the layers as CSV with a header line.
CONVSCOPE_API std::string net_csv(const NetBenchReport& report);

}  // namespace convscope
