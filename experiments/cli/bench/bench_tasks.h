// SPDX-License-Identifier: Apache-2.0
// bench_tasks.h: the common parts of `convscope bench` for all operators: timing options, the
// problems of a list, and the loop that prints tables and writes files.
#pragma once

#include <algorithm>
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

// The JSON and CSV files of a benchmark. They are created with the first row.
struct BenchFiles {
  BenchFile json, csv;
  // Checks that both paths can be written; fails otherwise.
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
// Fails with a usage error of `command` when the options contradict each other.
void check_timing(const char* command, const TimingArguments& arguments);
// Returns the settings; fails when the device is not available.
BenchSettings bench_settings(const TimingArguments& arguments);
BenchReportSettings report_settings(const BenchSettings& settings, const char* operation);

// Throws unless channels, image size and number of outputs are given. They have the default 1,
// which is hardly ever intended. A missing kernel size means 1x1, as in experiments/shapes. Throws
// also when only one of kernel height and width is given.
void require_sizes(const char* command, const std::string& text);

// Returns the problems of the files, then the problems of the texts.
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
    if constexpr (requires(Problem one) { one.h; }) require_sizes(command, text);
  }
  return out;
}

// Sets the layouts. "": no change. "both": each problem in nchw, then in nchw16c.
template <class Problem>
void set_layouts(const std::string& layout, std::vector<Problem>& problems) {
  if (layout.empty()) return;
  const auto wanted = layout == "both" ? std::vector<std::string>{"nchw", "nchw16c"}
                                       : std::vector<std::string>{layout};
  std::vector<Problem> out;
  for (Problem& problem : problems) {
    for (const ImageLayouts& one : kImageLayouts) {
      if (std::ranges::count(wanted, name_of(one)) == 0) continue;
      problem.layout = one;
      out.push_back(problem);
    }
  }
  problems = std::move(out);
}

// Sets the precision. "": no change.
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

// Runs all tasks: prints one table per task, updates `files` after each task, then prints the
// summary and `legend`. Returns the exit code; fails when every algorithm refuses every problem.
int run_bench_tasks(const char* command, const std::vector<BenchTask>& tasks, BenchFiles& files,
                    BenchReportSettings settings, const std::string& legend);

}  // namespace convscope
