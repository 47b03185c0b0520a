// SPDX-License-Identifier: Apache-2.0
// sweep_command.cpp: `convscope sweep`: trains every member of a config's `sweep:` block and ends
// with one table.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "experiments/cli/command.h"
#include "experiments/config/sweep_block.h"
#include "experiments/sweep/sweep_check.h"

namespace convscope {
namespace {

struct Arguments {
  std::vector<std::string> words;  // CONFIG and KEY=VALUE
  std::string root = "runs";
  std::string name;
  bool dry_run = false;
};

SweepPlan read_plan(const Arguments& arguments) {
  std::string path;
  std::vector<std::string> overrides;
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
  const SweepPlan plan = read_plan(arguments);
  check_members(plan);
  const std::string folder = arguments.root + "/" + plan.name;
  if (arguments.dry_run) {
    const std::string list = list_members(plan, folder);
    std::fwrite(list.data(), 1, list.size(), stdout);
    return 0;
  }
  fail(ErrorKind::kUnavailable, "sweep", "expected --dry-run, because members are not run yet");
}

std::function<int()> declare_sweep(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  app.add_option("CONFIG", arguments->words, "the sweep, then KEY=VALUE to change it")
      ->type_name("");
  app.add_option("-o,--output", arguments->root, "folder of all runs")
      ->type_name("DIR")
      ->capture_default_str();
  app.add_option("--name", arguments->name, "name of the sweep; beats the config")->type_name("N");
  app.add_flag("-n,--dry-run", arguments->dry_run, "list the members, one a line, and stop");
  return [arguments] { return sweep(*arguments); };
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND(
    "sweep", {.summary = "train every member of a config's sweep, end with one table",
              .usage = "sweep CONFIG [KEY=VALUE...] [--dry-run] [--jobs N] [-o DIR]",
              .examples = {"sweep experiments/configs/synthetic_sweep.yaml --dry-run",
                           "sweep experiments/configs/synthetic_sweep.yaml sweep.seeds=[1,2,3]"},
              .order = 15,
              .declare = convscope::declare_sweep})
