// SPDX-License-Identifier: Apache-2.0
// html_report.h: self-contained pages that show facts, all plots with their numbers, and tables.
// The pages need no script, font or other file, and are readable on a phone.
#pragma once

#include <string>
#include <vector>

#include "experiments/report/plot_kind.h"
#include "experiments/report/run_table.h"

namespace convscope {

// Returns the page of one run: plots, summary, epochs, layers and config. Parts without data are
// left out. Never throws because of file contents: the trainer writes this page after each epoch.
CONVSCOPE_API std::string html_report(const std::string& run_folder);

// Returns the page of several runs: plots, a table of means per config, a table of runs.
CONVSCOPE_API std::string html_report(const std::string& title, const RunSet& set,
                                      const DrawnPlots& drawn, const std::vector<RunRow>& rows);

// Returns the page of benchmarks: plots with their numbers, and what was left out.
CONVSCOPE_API std::string html_report(const BenchSet& set, const DrawnPlots& drawn);
CONVSCOPE_API std::string html_report(const LadderSet& set, const DrawnPlots& drawn);

}  // namespace convscope
