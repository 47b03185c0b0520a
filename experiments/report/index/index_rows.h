// SPDX-License-Identifier: Apache-2.0
// index_rows.h: reads all runs and sweeps below a folder fast: a thousand runs in a second or two.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "experiments/report/run_table.h"

namespace convscope {

struct IndexedRun {
  RunRow row;
  std::string started, project;                 // from env.json
  std::string sweep;                            // name of its sweep, or ""
  bool has_page = false;                        // whether report.html exists
  std::vector<double> test_acc;                 // after each evaluated epoch, %
  std::map<std::string, std::string> settings;  // keys of its config that differ between runs
};

struct IndexedSweep {
  std::string path = {}, name = {}, state = {};
  std::map<std::string, int> members = {};  // "done" -> 3
  std::string page = {};                    // its page: "report.html", "sweep.md" or ""
};

struct RunIndex {
  std::vector<IndexedRun> runs;  // newest first
  std::vector<IndexedSweep> sweeps;
};
CONVSCOPE_API RunIndex read_run_index(const std::string& folder);

// Returns the settings in a run's config.yaml that have a single value ("optim.lr" -> "0.05").
// Lists of blocks, such as layers, are left out.
CONVSCOPE_API std::map<std::string, std::string> plain_settings(const std::string& yaml);

}  // namespace convscope
