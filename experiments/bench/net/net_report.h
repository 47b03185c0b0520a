// SPDX-License-Identifier: Apache-2.0
// net_report.h: what `convscope bench net` says: tables for people, JSON and CSV for programs.
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
  // Of one case each, in the order of `rows`; empty when layers were not asked for.
  std::vector<std::vector<NetLayerRow>> layers;
  std::vector<std::vector<NetOpRow>> operations;
};

CONVSCOPE_API std::string net_table(const std::vector<NetBenchRow>& rows);
// The layers of one case, and what they add up to beside the whole network.
CONVSCOPE_API std::string net_layer_table(const NetBenchRow& row,
                                          const std::vector<NetLayerRow>& layers);
// What the plan of one case does and how long; "" when there is none.
CONVSCOPE_API std::string net_operation_table(const NetBenchRow& row,
                                              const std::vector<NetOpRow>& operations);
// {"format", "machine", "settings", "rows": [{..., "layers": [...], "operations": [...]}]}
CONVSCOPE_API std::string net_json(const NetBenchReport& report);
// The rows of the JSON without the layers, one in a line, after a line of names.
CONVSCOPE_API std::string net_csv(const NetBenchReport& report);

}  // namespace convscope
