// SPDX-License-Identifier: Apache-2.0
// bench_tasks.h: what `convscope bench` does for every heavy layer: the options that say how to
// time, the problems of a list, and the loop over them that prints tables and writes files.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "experiments/bench/bench_report.h"
#include "experiments/bench/file/bench_file.h"
#include "experiments/bench/problem_list.h"
#include "experiments/cli/command_line.h"
#include "experiments/config/shipped/shipped_configs.h"

namespace convscope {

inline constexpr const char* kJsonHelp =
    "file for all results as JSON (rows so far: NAME.unfinished.json); -: stdout";

// The JSON and the CSV file that a benchmark is asked for. They are made when something is written.
struct BenchFiles {
  BenchFile json, csv;
  // An error when one of them cannot be written.
  BenchFiles(const std::string& json_path, const std::string& csv_path)
      : json(json_path), csv(csv_path) {}

  void keep(const std::function<std::string()>& json_text,
            const std::function<std::string()>& csv_text) {
    if (json.wanted()) json.keep(json_text());
    if (csv.wanted()) csv.keep(csv_text());
  }
  void finish(const std::function<std::string()>& json_text,
              const std::function<std::string()>& csv_text) {
    if (json.wanted()) json.finish(json_text());
    if (csv.wanted()) csv.finish(csv_text());
  }
};

struct TimingArguments {
  std::string device = "cpu";
  std::string cache = "warm";
  std::string clock = "wall";
  std::string weights = "once";
  std::string json, csv;
  double min_time = 0.2;
  int rounds = 5;
};

void add_timing_options(CommandLine& app, TimingArguments& arguments);
// A usage error of `command` when they do not fit.
void check_timing(const char* command, const TimingArguments& arguments);
// The device must be there.
BenchSettings bench_settings(const TimingArguments& arguments);
BenchReportSettings report_settings(const BenchSettings& settings, const char* operation);

// Channels, image and outputs that are left out would be 1: numbers for a convolution that nobody
// means. No kernel is one of 1x1, as in experiments/shapes; half a kernel is a mistake.
void require_sizes(const char* command, const std::string& text);

// Those of the files, then those of the texts.
template <class Problem>
std::vector<Problem> problems_given(const char* command, const std::vector<std::string>& files,
                                    const std::vector<std::string>& texts) {
  std::vector<Problem> out;
  for (const std::string& path : files) {
    for (const Problem& problem : problems_of_file<Problem>(find_shapes(path)))
      out.push_back(problem);
  }
  for (const std::string& text : texts) {
    out.push_back(Problem::parse(text));
    require_sizes(command, text);
  }
  return out;
}

// "": their own. "both": each problem in nchw, then blocked.
template <class Problem>
void set_layouts(const std::string& layout, std::vector<Problem>& problems) {
  if (layout.empty()) return;
  std::vector<Problem> out;
  for (Problem& problem : problems) {
    for (const ActivationLayout one : kActivationLayouts) {
      const bool wanted = layout == "both"
                              ? one == ActivationLayout::nchw || one == ActivationLayout::blocked
                              : layout == name_of(one);
      if (!wanted) continue;
      problem.layout = one;
      out.push_back(problem);
    }
  }
  problems = std::move(out);
}

// "": their own.
template <class Problem>
void set_precision(const std::string& name, std::vector<Problem>& problems) {
  for (const ComputePrecision precision : kComputePrecisions) {
    if (name != name_of(precision)) continue;
    for (Problem& problem : problems) {
      problem.dtype = factor_type(precision);
      problem.math = math_mode(precision);
    }
  }
}

struct BenchTask {
  std::string title;
  std::function<ReportedGroup(const BenchProgress&)> run;
};

// Runs them all: a table on stdout for each, what there is to `files` after each, at the end the
// summary and `legend`. Returns the exit code; an error when every algorithm refuses every problem.
int run_bench_tasks(const char* command, const std::vector<BenchTask>& tasks, BenchFiles& files,
                    BenchReportSettings settings, const std::string& legend);

}  // namespace convscope
