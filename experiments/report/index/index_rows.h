// SPDX-License-Identifier: Apache-2.0
// index_rows.h: all runs and sweeps below a folder, read cheaply: a thousand of them in a second or
// two.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "experiments/report/run_table.h"

namespace convscope {

struct IndexedRun {
  RunRow row;
  std::string started, project;                 // of env.json
  std::string sweep;                            // name of the sweep that it belongs to, or ""
  bool has_page = false;                        // report.html is there
  std::vector<double> test_acc;                 // after each epoch that was evaluated, %
  std::map<std::string, std::string> settings;  // of its config, those that not all runs share
};

struct IndexedSweep {
  std::string path = {}, name = {}, state = {};
  std::map<std::string, int> members = {};  // "done" -> 3
  std::string page = {};                    // its file to look at: "report.html", "sweep.md" or ""
};

struct RunIndex {
  std::vector<IndexedRun> runs;  // newest first
  std::vector<IndexedSweep> sweeps;
};
CONVSCOPE_API RunIndex read_run_index(const std::string& folder);

// "optim.lr" -> "0.05": the plain values of a config.yaml that a run has written; without its lists
// of blocks.
CONVSCOPE_API std::map<std::string, std::string> plain_settings(const std::string& yaml);

}  // namespace convscope
