// SPDX-License-Identifier: Apache-2.0
// html_report.h: self-contained pages: facts, all plots with their numbers, and the tables. No
// script, no font, no other file; readable on a telephone.
#pragma once

#include <string>
#include <vector>

#include "experiments/report/plot_kind.h"
#include "experiments/report/run_table.h"

namespace convscope {

// About one run: plots, summary, epochs, layers and config; what is missing is left out. Never
// throws for what stands in the files: the trainer writes this page after each epoch.
CONVSCOPE_API std::string html_report(const std::string& run_folder);

// About several runs: plots, a table of the means of each config, a table of the runs.
CONVSCOPE_API std::string html_report(const std::string& title, const RunSet& set,
                                      const DrawnPlots& drawn, const std::vector<RunRow>& rows);

// About benchmarks: plots with their numbers, what was left out.
CONVSCOPE_API std::string html_report(const BenchSet& set, const DrawnPlots& drawn);
CONVSCOPE_API std::string html_report(const LadderSet& set, const DrawnPlots& drawn);

}  // namespace convscope
