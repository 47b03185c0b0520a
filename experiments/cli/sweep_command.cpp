// SPDX-License-Identifier: Apache-2.0
// sweep_command.cpp: `convscope sweep`: trains every member of a config's `sweep:` block and ends
// with one table.
#include <cstdio>
#include <memory>

#include "experiments/cli/command.h"
#include "experiments/cli/measure_once.h"
#include "experiments/config/sweep_block.h"
#include "experiments/report/table/latex_table.h"
#include "experiments/sweep/sweep_check.h"
#include "experiments/sweep/sweep_runner.h"

namespace convscope {
namespace {

struct Arguments {
  std::vector<std::string> words;  // CONFIG and KEY=VALUE
  std::string root = "runs";
  std::string name;
  std::string format = "md";
  int jobs = 1;
  bool dry_run = false, retry_failed = false;
};

SweepPlan read_plan(const Arguments& arguments, std::vector<std::string>& overrides) {
  std::string path;
  for (const std::string& word : arguments.words) {
    if (word.find('=') != std::string::npos) {
      overrides.push_back(word);
    } else if (path.empty()) {
      path = word;
    } else {
      fail_usage("sweep",
                 cat("expected one config and then KEY=VALUE, got a second file '", word, "'"));
    }
  }
  if (path.empty()) fail_usage("sweep", "expected a config file");
  if (!arguments.name.empty()) overrides.push_back("name=" + arguments.name);
  for (const std::string& word : global_overrides()) overrides.push_back(word);
  return load_sweep(path, overrides);
}

int sweep(const Arguments& arguments) {
  SweepOptions options;
  options.root = arguments.root;
  options.jobs = arguments.jobs;
  options.retry_failed = arguments.retry_failed;
  options.quiet = global_options().verbosity < 0;
  const SweepPlan plan = read_plan(arguments, options.overrides);
  const std::vector<RefusedRow> refused = refused_rows(plan);
  if (arguments.dry_run) {
    print_result(list_members(plan, arguments.root + "/" + plan.name, refused));
  }
  refuse(refused);
  if (arguments.dry_run) return 0;
  measure_this_machine_once();  // not in each member, where others would keep the cores busy
  const SweepResult result = run_sweep(plan, options);
  if (result.exit_code > 128) return result.exit_code;  // not the end: no table yet
  const std::string text =
      arguments.format == "csv"     ? to_csv(sweep_table(plan, result.outcomes))
      : arguments.format == "json"  ? to_json(sweep_table(plan, result.outcomes))
      : arguments.format == "latex" ? to_latex(sweep_reading_table(plan, result.outcomes))
                                    : sweep_markdown(plan, result.outcomes);
  print_result(text);
  return result.exit_code;
}

std::function<int()> declare_sweep(CommandLine& app) {
  auto arguments = std::make_shared<Arguments>();
  app.add_option(
         "CONFIG", arguments->words,
         "a file, or the name of a shipped config (config list); then KEY=VALUE to change it")
      ->type_name("");
  app.add_option("-o,--output", arguments->root, "folder of all runs")
      ->type_name("DIR")
      ->capture_default_str();
  app.add_option("--name", arguments->name, "name of the sweep; beats the config")->type_name("N");
  app.add_option("-j,--jobs", arguments->jobs, "members side by side; they share the threads")
      ->type_name("N")
      ->capture_default_str()
      ->range(1, 1024);
  app.add_option("-f,--format", arguments->format, "of the table on stdout: md, csv, json or latex")
      ->type_name("F")
      ->capture_default_str()
      ->one_of({"md", "csv", "json", "latex"});
  app.add_flag("--retry-failed", arguments->retry_failed,
               "train again what diverged or missed its gate");
  app.add_flag(
      "-n,--dry-run", arguments->dry_run,
      "list the members, one a line, and stop; a member that cannot be trained is named with the "
      "reason");
  return [arguments] { return sweep(*arguments); };
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND(
    "sweep",
    {.summary = "train every member of a config's sweep, end with one table",
     .usage = "sweep CONFIG|NAME [KEY=VALUE...] [--dry-run] [--jobs N] [-o DIR]",
     .examples = {"sweep synthetic_sweep --dry-run", "sweep synthetic_sweep sweep.seeds=[1,2,3]"},
     .order = 15,
     .declare = convscope::declare_sweep})
