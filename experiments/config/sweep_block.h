// SPDX-License-Identifier: Apache-2.0
// sweep_block.h: many runs from one config. Its block `sweep:` lists the differences:
//
//   sweep:
//     members:                       # entries, each with a name and any keys
//       - {name: dense, reference: {acc: 58.07}}
//       - {name: pruned, sparsity: {method: magnitude, target: 0.9}, optim.lr: 0.02}
//     zip:                           # lists of one length; value i of each belongs together
//       data.batch_size: [64, 256]
//       optim.lr: [0.02, 0.08]
//     grid:                          # all combinations
//       conv.algorithm: [direct, im2col_gemm]
//     exclude:                       # runs with these values are left out
//       - {name: pruned, conv.algorithm: direct}
//     seeds: [1, 2, 3]               # default: the config's seed
//     slurm: {time: 30, at_once: 4}  # with --launcher slurm (slurm_settings.h)
//
// A row of the table of results combines one entry of `members:`, one index of `zip:` and one point
// of `grid:`. The sweep trains each row once for each seed. In the code, a member is one of these
// runs, not an entry of `members:`. Every mistake is reported as in experiment_config.h.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "experiments/config/experiment_config.h"
#include "experiments/config/slurm/slurm_settings.h"

namespace convscope {

// Returns whether the file or its base files have a block `sweep:` that no override removes.
CONVSCOPE_API bool holds_sweep(const std::string& path,
                               const std::vector<std::string>& overrides = {});

struct SweepMember {
  std::string row;                                             // name of its row and of its folder
  std::vector<std::pair<std::string, std::string>> overrides;  // ("data.batch_size", "64")
  std::string place;        // "table.yaml:12", the place that defines the row
  ExperimentConfig config;  // resolved; named like the row
};

struct SweepRow {
  std::string name;
  std::map<std::string, double> reference;  // published figures to compare with, by column
};

struct SweepPlan {
  std::string name;                  // name of the sweep and of its folder
  std::vector<SweepRow> rows;        // in the order of the table
  std::vector<SweepMember> members;  // in running order: all rows with the first seed, ...
  bool varies_threads = false;       // whether the number of threads differs between members
  std::string yaml;                  // the sweep with its base files as one text
  SlurmSettings slurm = {};
};

CONVSCOPE_API SweepPlan load_sweep(const std::string& path,
                                   const std::vector<std::string>& overrides = {});
// Parses a text in memory.
CONVSCOPE_API SweepPlan parse_sweep_text(std::string_view yaml, std::string_view file_name,
                                         const ConfigReader& reader = {},
                                         const std::vector<std::string>& overrides = {});

}  // namespace convscope
