// SPDX-License-Identifier: Apache-2.0
// bench_report.h: what a benchmark says: a table for people, JSON and CSV for programs.
#pragma once

#include <string>
#include <vector>

#include "experiments/bench/conv2d_bench.h"

namespace convscope {

// What stands once at the head of the JSON.
struct Conv2dBenchSettings {
  Device device;
  int threads = 0;
  bool cold = false;
  bool cpu_clock = false;
  WeightUse weights = WeightUse::once;
  double min_seconds = 0;
  int least_samples = 0;
  std::string peer_name, peer_version;  // "" without a peer
  std::optional<CpuCeilings> ceilings;
};

// One problem and direction: every algorithm, every variant of the peer, every refusal.
CONVSCOPE_API std::string bench_table(const Conv2dBenchGroup& group);
// Over all of them, for each direction: the ratios to the peer (geometric mean, least), and how
// often `auto` chose well. "" when there is nothing to sum up.
CONVSCOPE_API std::string bench_summary(const std::vector<Conv2dBenchGroup>& groups);

// {"format", "machine", "settings", "peer", "rows": [...], "peer_rows": [...], "refusals": [...]}
CONVSCOPE_API std::string bench_json(const std::vector<Conv2dBenchGroup>& groups,
                                     const Conv2dBenchSettings& settings);
// The rows of the JSON, one in a line, after a line of names.
CONVSCOPE_API std::string bench_csv(const std::vector<Conv2dBenchGroup>& groups,
                                    const Conv2dBenchSettings& settings);

// As a table, and as a JSON object.
CONVSCOPE_API std::string ceilings_json_text(const CpuCeilings& ceilings);
CONVSCOPE_API std::string ceilings_text(const CpuCeilings& ceilings);

// A result was wrong, ours or the peer's.
CONVSCOPE_API bool any_wrong(const std::vector<Conv2dBenchGroup>& groups);

}  // namespace convscope
