// SPDX-License-Identifier: Apache-2.0
// bench_tasks.cpp: the common parts of `convscope bench` for all operators: timing options, the
// problems of a list, and the loop that prints tables and writes files.
#include "experiments/cli/bench/bench_tasks.h"

#include <algorithm>
#include <iostream>

#include "experiments/cli/bench/bench_remarks.h"
#include "experiments/cli/command.h"
#include "experiments/run_folder/machine_load.h"
#include "framework/parallel.h"

namespace convscope {
void add_timing_options(CommandLine& app, TimingArguments& arguments) {
  app.add_option("--device", arguments.device, "device: cpu, cuda or cuda:<index>")
      ->capture_default_str();
  app.add_option("--cache", arguments.cache, "caches: warm, or cold (flushed before each call)")
      ->capture_default_str();
  app.add_option(
         "--clock", arguments.clock,
         "wall: elapsed time; cpu: CPU time of one thread, for --threads 1 on a busy machine")
      ->capture_default_str();
  app.add_option("--weights", arguments.weights,
                 "once: weights are prepared in each call, as in training; often: before the "
                 "timing, as in inference (the other library too)")
      ->one_of({"once", "often"})
      ->capture_default_str();
  app.add_option("--min-time", arguments.min_time,
                 "seconds of timing for each algorithm and problem")
      ->capture_default_str();
  app.add_option("--rounds", arguments.rounds, "minimum number of timings of each algorithm")
      ->capture_default_str();
  app.add_option("--json", arguments.json, kJsonHelp)->output_file();
  app.add_option("--csv", arguments.csv, "file for the rows as CSV; -: stdout")->output_file();
}

void check_timing(const char* command, const TimingArguments& arguments) {
  if (arguments.cache != "warm" && arguments.cache != "cold") {
    fail_usage(command, cat("expected --cache warm or cold, got '", arguments.cache, "'"));
  }
  if (arguments.clock != "wall" && arguments.clock != "cpu") {
    fail_usage(command, cat("expected --clock wall or cpu, got '", arguments.clock, "'"));
  }
  if (arguments.clock == "cpu" && (num_threads() != 1 || arguments.device != "cpu")) {
    fail_usage(command,
               "expected --threads 1 and device cpu because --clock cpu counts one thread's time");
  }
  if (!(arguments.min_time > 0 && arguments.min_time <= 600)) {
    fail_usage(command, cat("expected --min-time above 0 and at most 600 seconds, got ",
                            arguments.min_time));
  }
  if (arguments.rounds < 1 || arguments.rounds > 100000) {
    fail_usage(command, cat("expected --rounds from 1 to 100000, got ", arguments.rounds));
  }
}

BenchSettings bench_settings(const TimingArguments& arguments) {
  BenchSettings out;
  out.device = Device::parse(arguments.device);
  backend_of(out.device);  // fails when it is not available
  out.cold = arguments.cache == "cold";
  out.cpu_clock = arguments.clock == "cpu";
  out.weights = arguments.weights == "often" ? WeightUse::often : WeightUse::once;
  out.min_seconds = arguments.min_time;
  out.least_samples = arguments.rounds;
  return out;
}

BenchReportSettings report_settings(const BenchSettings& settings, const char* operation) {
  return {.device = settings.device,
          .threads = num_threads(),
          .cold = settings.cold,
          .cpu_clock = settings.cpu_clock,
          .weights = settings.weights,
          .min_seconds = settings.min_seconds,
          .least_samples = settings.least_samples,
          .baseline_name = "",
          .baseline_version = "",
          .peaks = settings.peaks,
          .operation = operation};
}

void require_sizes(const char* command, const std::string& text) {
  std::vector<std::string> missing = {"c", "h", "w", "k", "r", "s"};
  for (const std::string& word : split_commas(text)) {
    std::erase(missing, word.substr(0, word.find('=')));
  }
  const auto is_kernel = [](const std::string& key) { return key == "r" || key == "s"; };
  if (std::ranges::count_if(missing, is_kernel) == 2) std::erase_if(missing, is_kernel);
  if (missing.empty()) return;
  fail_usage(command, cat("expected --problem with c, h, w and k, and r with s (without both the "
                          "kernel is 1x1), because these sizes have no default, got '",
                          text, "' without ", join(missing)));
}

int run_bench_tasks(const char* command, const std::vector<BenchTask>& tasks, BenchFiles& files,
                    BenchReportSettings settings, const std::string& legend) {
  warn_of_load(num_threads());
  ReportedGroups groups;
  BenchRemarks remarks(tasks.size());
  for (const BenchTask& task : tasks) {
    remarks.begin(task.title);
    const LoadSpan load;
    groups.push_back(task.run([&](const std::string& what) { remarks.say(what); }));
    groups.back().cores_of_others = load.others();
    remarks.clear();
    std::cout << bench_table(groups.back()) << "\n" << std::flush;
    if (groups.size() < tasks.size()) {
      files.keep([&] { return bench_json(groups, settings); },
                 [&] { return bench_csv(groups, settings); });
    }
  }
  settings.complete = true;
  files.finish([&] { return bench_json(groups, settings); },
               [&] { return bench_csv(groups, settings); });
  std::vector<std::optional<double>> loads;
  for (const ReportedGroup& group : groups) loads.push_back(group.cores_of_others);
  if (settings.device.type == DeviceType::cpu) remark(disturbed_cases(loads, num_threads()));
  std::cout << bench_summary(groups) << legend;
  if (any_wrong(groups)) return exit_code(ErrorKind::kRun);
  const bool all_refused = std::ranges::all_of(groups, [](const ReportedGroup& group) {
    return group.rows.empty() && group.skipped.empty();
  });
  if (all_refused) {
    fail(ErrorKind::kUnavailable, command,
         "expected an algorithm that accepts one of the problems, but each was refused");
  }
  return 0;
}

}  // namespace convscope
