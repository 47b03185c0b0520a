// SPDX-License-Identifier: Apache-2.0
// sweep_block_axes.h: the block `sweep:` as written, before combination.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "experiments/config/document.h"
#include "experiments/config/slurm/slurm_settings.h"

namespace convscope::config {

// One differing key with its value.
struct SweepSetting {
  std::string key;  // dotted
  Origin origin;
  Node value;
};

// One point of an axis: its settings, and its part of the name of a row.
struct SweepChoice {
  std::string label;
  std::vector<SweepSetting> settings;
  std::map<std::string, double> reference;
  Origin origin;
};

struct SweepExclude {
  Origin origin;
  std::vector<SweepSetting> settings;  // "name" and "seed" refer to the member
};

struct SweepBlock {
  // The axes of a sweep. The list of members is one axis, zip is one, and each key of grid is one.
  // A row takes one choice of each axis.
  std::vector<std::vector<SweepChoice>> axes;
  std::vector<SweepExclude> excludes;
  std::vector<std::int64_t> seeds;            // empty: the config's own
  std::map<std::string, std::string> owners;  // key -> "sweep.grid"
  SlurmSettings slurm;
};

SweepBlock read_sweep_block(const Node& node, Mistakes& mistakes);

// Returns "im2col_gemm", "[16, 1]" or "{method: lsq, w_bits: 4}": one line of YAML.
std::string flow_text(const Node& node);
// Returns the tree as the text of a file.
std::string block_text(const Node& node);
// Returns whether two values are equal. 64 equals 64.0, but the text "64" equals neither.
bool same_value(const Node& a, const Node& b);

}  // namespace convscope::config
