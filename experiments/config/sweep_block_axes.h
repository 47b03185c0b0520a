// SPDX-License-Identifier: Apache-2.0
// sweep_block_axes.h: the block `sweep:` as it is written, before anything is combined.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "experiments/config/document.h"
#include "experiments/config/slurm/slurm_settings.h"

namespace convscope::config {

// One key that differs, with its value.
struct SweepSetting {
  std::string key;  // dotted
  Origin origin;
  Node value;
};

// One place on an axis: what it sets, and its part of the row's name.
struct SweepChoice {
  std::string label;
  std::vector<SweepSetting> settings;
  std::map<std::string, double> reference;
  Origin origin;
};

struct SweepExclude {
  Origin origin;
  std::vector<SweepSetting> settings;  // "name" and "seed" stand for those of the member
};

struct SweepBlock {
  // The members, the places of zip, and each key of grid: a row takes one choice of each.
  std::vector<std::vector<SweepChoice>> axes;
  std::vector<SweepExclude> excludes;
  std::vector<std::int64_t> seeds;            // empty: the config's own
  std::map<std::string, std::string> owners;  // key -> "sweep.grid"
  SlurmSettings slurm;
};

SweepBlock read_sweep_block(const Node& node, Mistakes& mistakes);

// "im2col_gemm", "[16, 1]", "{method: lsq, w_bits: 4}": one line, as it could stand in the file.
std::string flow_text(const Node& node);
// The tree as a file.
std::string block_text(const Node& node);
// Whether two values mean the same: 64 and 64.0 do, 64 and "64" do not.
bool same_value(const Node& a, const Node& b);

}  // namespace convscope::config
