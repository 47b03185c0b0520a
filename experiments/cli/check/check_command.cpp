// SPDX-License-Identifier: Apache-2.0
// check_command.cpp: `convscope check`: runs the test matrix on one algorithm, or on all algorithms
// of a folder of plug-ins, and diagnoses errors. Each algorithm runs in a separate process.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

#include "experiments/check/run_check.h"
#include "experiments/cli/command.h"
#include "experiments/config/shipped/shipped_configs.h"
#include "experiments/plugins/plugins.h"
#include "experiments/trainer/progress.h"
#include "framework/io/atomic_file.h"
#include "framework/io/clean_text.h"

namespace convscope {
namespace {

struct Arguments {
  std::string name, require, json;
  CheckSettings settings;
};

// Returns the command line that reproduces a fault.
std::string command_for(const CheckTask& task, const std::string& problem) {
  return cat("convscope check conv2d ", task.algorithm,
             task.plugin.empty() ? "" : cat(" --plugin ", task.plugin), " --problem ", problem);
}

// Returns one task per file of --plugin, including files that are refused.
std::vector<CheckTask> tasks_of_plugins() {
  std::vector<std::string> files;
  std::vector<CheckTask> out;
  for (const std::string& word : global_options().plugins) {
    for (const std::string& file : plugin_files(word)) {
      if (std::ranges::count(files, file) > 0) continue;
      files.push_back(file);
      for (CheckTask& task : tasks_of_plugin(file)) out.push_back(std::move(task));
    }
  }
  return out;
}

// Returns the algorithm NAME of the program or of a plug-in.
CheckTask task_named(const std::string& name, const std::vector<CheckTask>& plugin_tasks) {
  const Registry<Conv2dAlgorithm>& ours = conv2d_algorithms(DeviceType::cpu);
  if (ours.find(name) != nullptr) return {.plugin = "", .algorithm = name, .refusal = ""};
  const auto found = std::ranges::find(plugin_tasks, name, &CheckTask::algorithm);
  if (found != plugin_tasks.end()) return *found;
  for (const CheckTask& task : plugin_tasks) {
    if (!task.refusal.empty()) fail(ErrorKind::kUnavailable, "plugin", task.refusal);
  }
  std::vector<std::string> known = ours.names();
  for (const CheckTask& task : plugin_tasks) known.push_back(task.algorithm);
  const std::string near = nearest_word(name, known);
  fail(ErrorKind::kUnavailable, "check",
       cat("unknown algorithm '", name, "'",
           near.empty() ? "" : cat("; did you mean '", near, "'?"), " (known: ", join(known), ")"));
}

void check_arguments(Arguments& arguments) {
  CheckSettings& settings = arguments.settings;
  const auto positive = [](const char* option, double value) {
    if (value == 0 || (std::isfinite(value) && value > 0)) return;
    fail_usage("check", cat("expected ", option, " of a number above 0, got ", value));
  };
  positive("--timeout", settings.timeout);
  positive("--max-error-growth", settings.max_error_growth);
  if (!arguments.require.empty()) settings.require = parse_features(arguments.require);
  if (!settings.problem.empty()) Conv2dProblem::parse(settings.problem).check();
  if (arguments.name.empty() && global_options().plugins.empty()) {
    fail_usage("check", "expected the name of an algorithm, or --plugin FILE, got neither");
  }
  if (!arguments.json.empty() && arguments.json != "-") check_writable(arguments.json);
}

int exit_code_of(const std::vector<CheckRow>& rows) {
  const auto some = [&](auto&& is) { return std::ranges::any_of(rows, is); };
  const auto refused = [](const CheckRow& row) { return row.status == "refused"; };
  if (some([&](const CheckRow& row) { return !row.passes() && !refused(row); })) {
    return exit_code(ErrorKind::kRun);
  }
  return some(refused) ? exit_code(ErrorKind::kUnavailable) : 0;
}

int check(Arguments arguments) {
  check_arguments(arguments);
  const CheckSettings& settings = arguments.settings;
  const CheckLists lists = settings.problem.empty() ? check_lists(shipped_shapes()) : CheckLists();
  if (!global_options().plugins.empty()) print_remark(cat("note: ", kPluginWarning));
  std::vector<CheckTask> tasks = tasks_of_plugins();
  const bool one = !arguments.name.empty();
  if (one) tasks = {task_named(arguments.name, tasks)};
  const bool quiet = global_options().verbosity < 0;
  const bool shows = Progress::mode_for(quiet) == Progress::Mode::bar;
  const bool to_stdout = arguments.json == "-";
  std::vector<CheckRow> rows;
  for (const CheckTask& task : tasks) {
    const std::string title =
        one ? ""
            : cat("[", rows.size() + 1, "/", tasks.size(), "] ", task.plugin, " ", task.algorithm);
    if (!one && !shows) print_remark(title);
    rows.push_back(run_check(
        task, settings, lists,
        [&](const std::string& problem) { return command_for(task, problem); },
        [&](const std::string& doing) {
          if (shows) {
            std::fprintf(stderr, "\r\033[K%.140s", clean_text(cat(title, " ", doing)).c_str());
          }
        }));
    if (shows) std::fprintf(stderr, "\r\033[K");
    // The results are written after each algorithm, so an interrupted check keeps them.
    if (!arguments.json.empty() && !to_stdout) {
      write_file(arguments.json, check_json(rows, settings, rows.size() == tasks.size()));
    }
  }
  if (to_stdout) {
    print_result(check_json(rows, settings, true));
  } else {
    print_screen(one ? check_text(rows[0]) : check_table(rows));
  }
  return exit_code_of(rows);
}

std::function<int()> declare(CommandLine& app) {
  auto arguments = std::make_shared<Arguments>();
  CheckSettings& settings = arguments->settings;
  const auto add_options = [&](CommandLine& line) {
    line.add_flag("--quick", settings.quick,
                  "fewer problems: small ones, edge cases and some random ones");
    line.add_option(
            "--problem", settings.problem,
            "one problem only, with all kinds of numbers: n=2,c=3,h=9,w=9,k=4,r=3,s=3,pad=1")
        ->type_name("TEXT");
    line.add_option("--require", arguments->require,
                    cat("features that the algorithm must accept: all, or some of ",
                        join(feature_names(), ","), " (default: none; what it accepts is checked)"))
        ->type_name("NAME,...");
    line.add_option("--max-error-growth", settings.max_error_growth,
                    "largest error_growth that is accepted (default: the algorithm's own)")
        ->type_name("X");
    line.add_option(
            "--timeout", settings.timeout,
            "time limit of one algorithm, in seconds (default: none; each case may take 120 s)")
        ->type_name("S");
    line.add_option("--json", arguments->json,
                    "file for the results as JSON; -: stdout, instead of the text")
        ->type_name("FILE");
  };
  CommandLine* const conv = app.add_subcommand("conv2d", "Check algorithms of convolution.");
  app.require_subcommand(0, 1);
  conv->add_option("NAME", arguments->name,
                   "algorithm (convscope info); default: all algorithms of --plugin, in a table")
      ->suggest(conv2d_algorithms(DeviceType::cpu).names());
  add_options(*conv);
  add_options(app);
  return [arguments] { return check(*arguments); };
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND(
    "check",
    {.summary = "Check the numbers of an algorithm and diagnose its errors.",
     .usage = "check [conv2d [NAME]] [--plugin FILE|FOLDER] [--quick] [--problem TEXT] [--require "
              "NAME,...] [--max-error-growth X] [--timeout S] [--json FILE|-]",
     .examples = {"check conv2d winograd_f4x3", "check conv2d mine --plugin mine/build/mine.so",
                  "check conv2d mine --plugin mine/build/mine.so --quick",
                  "check --plugin submissions --require stride,padding,backward --timeout 60 "
                  "--json marks.json"},
     .order = 52,
     .declare = convscope::declare,
     .opens_plugins = false})
