// SPDX-License-Identifier: Apache-2.0
// bench_call.cpp: `convscope bench OPERATOR`: times the algorithms of an operator on problems.
#include "experiments/operators/bench_call.h"

#include "experiments/cli/bench/bench_legend.h"
#include "experiments/cli/bench/bench_remarks.h"
#include "experiments/cli/command.h"
#include "experiments/cli/measure_once.h"

namespace convscope {

void BenchCall::add_direction(CommandLine& app) {
  app.add_option("--direction", direction_,
                 "directions: all, or some of forward,backward_data,backward_weight")
      ->capture_default_str();
}

void BenchCall::add_batch(CommandLine& app) {
  app.add_option("--batch", batch_, "batch size for all problems (default: their own)");
}

void BenchCall::add_layout(CommandLine& app, const std::string& layouts,
                           const std::vector<std::string>& names) {
  app.add_option("--layout", layout_, "memory layout of all images: " + layouts)->one_of(names);
}

void BenchCall::declare(CommandLine& app) {
  app.add_option("--shapes", shapes_,
                 "file with one problem per line, or the name of a shipped file")
      ->type_name("FILE");
  app.add_option("--problem", problems_, cat("one problem: ", words_.keys))->type_name("TEXT");
  add_direction(app);
  app.add_option("--algorithm", algorithm_, "algorithms: all, auto or names joined by commas")
      ->capture_default_str();
  app.add_option(
         "--precision", precision_,
         "precision for all problems: f32, tf32, bf16 or f16 (tf32, bf16 and f16: cuda only)")
      ->one_of({"f32", "tf32", "bf16", "f16"});
  add_options(app);
  add_timing_options(app, timing_);
  add_against_options(app, against_);
}

void BenchCall::check() const {
  if (!has_problems()) {
    fail_usage(command(), cat("expected --shapes FILE or --problem ", words_.example,
                              ",..., got none of them"));
  }
  check_timing_and_batch();
}

void BenchCall::check_timing_and_batch() const {
  check_timing(command(), timing_);
  check_against(command(), against_);
  if (batch_ < 0) fail_usage(command(), cat("expected --batch of at least 1, got ", batch_));
}

std::string BenchCall::legend() const { return bench_legend(/*with_baseline=*/false); }

int BenchCall::time(BenchFiles& files, const std::vector<BenchCase>& cases) {
  std::vector<BenchTask> tasks;
  for (const BenchCase& one : cases) {
    tasks.push_back({cat(one.problem, " ", name_of(one.direction)), one.run});
  }
  const std::string often = settings_.weights == WeightUse::often ? often_legend() : "";
  return run_bench_tasks(command(), tasks, files, report(), legend() + often);
}

int BenchCall::run() {
  check();
  settings_ = bench_settings(timing_);
  settings_.only_auto = algorithm_ == "auto";
  const std::vector<BenchCase> all = cases();
  if (against_.asked()) {
    measure_this_machine_once();
    std::vector<BenchWords> words;
    for (const BenchCase& one : all) {
      words.push_back({"bench", operation_, "--problem", one.problem, "--direction",
                       std::string(name_of(one.direction)), "--algorithm", algorithm_});
      const BenchWords more = timing_words(timing_);
      words.back().insert(words.back().end(), more.begin(), more.end());
    }
    return bench_against(command(), against_, timing_, words, settings_.only_auto);
  }
  BenchFiles files(timing_.json, timing_.csv);
  measure_this_machine_once();
  if (settings_.device.type == DeviceType::cpu) settings_.peaks = peaks_here();
  return time(files, all);
}

}  // namespace convscope
