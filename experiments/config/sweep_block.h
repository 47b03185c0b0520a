// SPDX-License-Identifier: Apache-2.0
// sweep_block.h: many runs from one config. Its block `sweep:` says what differs:
//
//   sweep:
//     members:                       # rows of the table, each with a name and any keys
//       - {name: dense, reference: {acc: 58.07}}
//       - {name: pruned, sparsity: {method: magnitude, target: 0.9}, optim.lr: 0.02}
//     zip:                           # lists of one length, taken side by side
//       data.batch_size: [64, 256]
//       optim.lr: [0.02, 0.08]
//     grid:                          # every value with every other
//       conv.algorithm: [direct, im2col_gemm]
//     exclude:                       # all that these values fit is left out
//       - {name: pruned, conv.algorithm: direct}
//     seeds: [1, 2, 3]               # default: the config's seed
//     slurm: {time: 30, at_once: 4}  # with --launcher slurm (slurm_settings.h)
//
// A row of the table is one member x one place of zip x one point of grid; a member of the sweep is
// a row with one seed. Every mistake is reported as in experiment_config.h.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "experiments/config/experiment_config.h"
#include "experiments/config/slurm/slurm_settings.h"

namespace convscope {

// Whether the file, or what it extends, has a block `sweep:` that no override takes away.
CONVSCOPE_API bool holds_sweep(const std::string& path,
                               const std::vector<std::string>& overrides = {});

struct SweepMember {
  std::string row;                                             // name of its row and of its folder
  std::vector<std::pair<std::string, std::string>> overrides;  // ("data.batch_size", "64")
  std::string place;        // "table.yaml:12", where the row is made
  ExperimentConfig config;  // resolved; its name is that of the row
};

struct SweepRow {
  std::string name;
  std::map<std::string, double> reference;  // figures of others to compare with, by column
};

struct SweepPlan {
  std::string name;                  // of the sweep and of its folder
  std::vector<SweepRow> rows;        // in the order of the table
  std::vector<SweepMember> members;  // in the order of running: all rows with the first seed, ...
  bool varies_threads = false;       // the number of threads is one of the things that differ
  std::string yaml;                  // the sweep with what it extends, as one text
  SlurmSettings slurm = {};
};

CONVSCOPE_API SweepPlan load_sweep(const std::string& path,
                                   const std::vector<std::string>& overrides = {});
// The same from a text in memory.
CONVSCOPE_API SweepPlan parse_sweep_text(std::string_view yaml, std::string_view file_name,
                                         const ConfigReader& reader = {},
                                         const std::vector<std::string>& overrides = {});

}  // namespace convscope
