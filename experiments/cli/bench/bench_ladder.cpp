// SPDX-License-Identifier: Apache-2.0
// bench_ladder.cpp: `convscope bench conv2d --ladder`: the rungs of one algorithm from its lesson
// to the fastest.
#include "experiments/cli/bench/bench_ladder.h"

#include <algorithm>
#include <iostream>

#include "experiments/bench/ladder/ladder_report.h"
#include "experiments/cli/bench/bench_legend.h"
#include "experiments/cli/bench/bench_remarks.h"
#include "experiments/run_folder/machine_load.h"

namespace convscope {
namespace {

LadderOptions options_of(BenchReportSettings& settings) {
  LadderOptions out{.device = settings.device,
                    .cold = settings.cold,
                    .cpu_clock = settings.cpu_clock,
                    .min_seconds = settings.min_seconds,
                    .least_samples = settings.least_samples};
  if (settings.device.type == DeviceType::cpu) {
    const CpuPeaks peaks = peaks_here();
    settings.peaks = out.peaks = peaks;
    out.cache_bytes = std::max(peaks.l2_bytes, peaks.l3_bytes);
    return out;
  }
  const DeviceFacts facts = backend_of(settings.device).facts(settings.device.index);
  if (facts.l2_bytes > 0) out.cache_bytes = static_cast<std::size_t>(facts.l2_bytes);
  if (const auto peaks = remembered_gpu_peaks()) {
    out.flops_per_second = peaks->f32_flops;
    out.tf32_flops_per_second = peaks->tf32_flops;
  }
  return out;
}

}  // namespace

int bench_ladders(const LadderArguments& arguments, BenchFiles& files,
                  BenchReportSettings settings) {
  const auto ladders = ladders_named(arguments.ladders, settings.device);
  std::vector<LadderResult> results;
  const LadderOptions options = options_of(settings);
  const std::size_t each = std::max<std::size_t>(1, arguments.problems.size());
  warn_of_load(settings.threads);
  const std::size_t count = ladders.size() * each * arguments.directions.size();
  const auto json = [&] { return ladder_json(results, settings); };
  const auto csv = [&] { return ladder_csv(results, settings); };
  BenchRemarks remarks(count);
  for (const Conv2dLadder* ladder : ladders) {
    Conv2dProblem own = Conv2dProblem::parse(ladder->problem);
    if (arguments.batch > 0) own.n = arguments.batch;
    const std::vector<Conv2dProblem> problems =
        arguments.problems.empty() ? std::vector<Conv2dProblem>{own} : arguments.problems;
    for (const Conv2dProblem& problem : problems) {
      for (const Direction direction : arguments.directions) {
        remarks.begin(cat("ladder ", ladder->name, " ", problem.text(), " ", name_of(direction)));
        const LoadSpan load;
        results.push_back(bench_ladder(*ladder, problem, direction, options,
                                       [&](const std::string& what) { remarks.say(what); }));
        remarks.clear();
        results.back().cores_of_others = load.others();
        std::cout << ladder_table(results.back()) << "\n" << std::flush;
        if (results.size() < count) files.keep(json, csv);
      }
    }
  }
  settings.complete = true;
  files.finish(json, csv);
  std::vector<std::optional<double>> loads;
  for (const LadderResult& result : results) loads.push_back(result.cores_of_others);
  if (settings.device.type == DeviceType::cpu) remark(disturbed_cases(loads, settings.threads));
  std::cout << ladder_legend();
  const auto any_row = [&](auto&& is) {
    return std::ranges::any_of(
        results, [&](const LadderResult& result) { return std::ranges::any_of(result.rows, is); });
  };
  if (any_row([](const LadderRow& row) { return row.wrong || !row.impossible.empty(); })) {
    return exit_code(ErrorKind::kRun);
  }
  if (!any_row([](const LadderRow& row) { return row.timed(); })) {
    const LadderRow& top = results.front().rows.back();
    fail(ErrorKind::kUnavailable, "bench conv2d",
         cat("expected a problem that a rung of --ladder ", arguments.ladders, " computes, got ",
             results.front().problem.text(), ", of which ", top.rung, " says: ", top.left_out));
  }
  return 0;
}

}  // namespace convscope
