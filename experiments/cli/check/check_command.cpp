// SPDX-License-Identifier: Apache-2.0
// check_command.cpp: `convscope check`: runs the test matrix on one algorithm, or on all algorithms
// of a folder of plug-ins, and diagnoses errors. Each algorithm runs in a separate process.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

#include "experiments/check/run_check.h"
#include "experiments/cli/command.h"
#include "experiments/operators/operator_table.h"
#include "experiments/plugins/plugins.h"
#include "experiments/run_folder/user_words.h"
#include "experiments/trainer/progress.h"
#include "framework/io/atomic_file.h"
#include "framework/io/clean_text.h"

namespace convscope {
namespace {

const char* const kPluginOperation = Operator<Conv2dProblem>::kOperation;

struct Arguments {
  std::string name, require, json;
  bool names_operator = false;  // check OPERATOR
  CheckSettings settings;
};

// Returns the command line that reproduces a fault.
std::string command_for(const std::string& operation, const CheckTask& task,
                        const std::string& problem) {
  return cat("convscope check ", operation, " ", task.algorithm,
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

std::vector<std::string> names_of_program(const std::string& operation) {
  std::vector<std::string> out;
  for (const AlgorithmFacts& one : operator_table().get(operation).algorithms(DeviceType::cpu)) {
    out.push_back(one.name);
  }
  return out;
}

// Returns the algorithm NAME of the program or of a plug-in.
CheckTask task_named(const std::string& name, const std::string& operation,
                     const std::vector<CheckTask>& plugin_tasks) {
  std::vector<std::string> known = names_of_program(operation);
  if (std::ranges::count(known, name) > 0) {
    return {.plugin = "", .algorithm = name, .refusal = ""};
  }
  const auto found = std::ranges::find(plugin_tasks, name, &CheckTask::algorithm);
  if (found != plugin_tasks.end()) return *found;
  for (const CheckTask& task : plugin_tasks) {
    if (!task.refusal.empty()) fail(ErrorKind::kUnavailable, "plugin", task.refusal);
  }
  for (const CheckTask& task : plugin_tasks) known.push_back(task.algorithm);
  fail(ErrorKind::kUnavailable, "check",
       cat("unknown algorithm '", name, "'", did_you_mean(name, known), " (known: ", join(known),
           ")"));
}

void check_arguments(Arguments& arguments) {
  CheckSettings& settings = arguments.settings;
  const auto positive = [](const char* option, double value) {
    if (value == 0 || (std::isfinite(value) && value > 0)) return;
    fail_usage("check", cat("expected ", option, " of a number above 0, got ", value));
  };
  positive("--timeout", settings.timeout);
  positive("--max-error-growth", settings.max_error_growth);
  if (!arguments.require.empty()) {
    settings.require =
        parse_features(arguments.require, operator_table().get(settings.operation).check.features);
  }
  const bool has_plugins = !global_options().plugins.empty();
  if (!arguments.names_operator && !has_plugins) {
    fail_usage("check", cat("expected an operator (", join_or(operator_table().names()),
                            ") or --plugin FILE, got neither"));
  }
  if (has_plugins && settings.operation != kPluginOperation) {
    fail_usage("check", cat("expected ", kPluginOperation,
                            " with --plugin because plug-ins have algorithms of it, got ",
                            settings.operation));
  }
  if (!arguments.json.empty() && arguments.json != "-") check_writable(arguments.json);
}

std::vector<CheckTask> tasks_of(const Arguments& arguments) {
  const std::string& operation = arguments.settings.operation;
  std::vector<CheckTask> out = tasks_of_plugins();
  if (!arguments.name.empty()) return {task_named(arguments.name, operation, out)};
  if (!global_options().plugins.empty()) return out;
  for (const std::string& name : names_of_program(operation)) {
    out.push_back({.plugin = "", .algorithm = name, .refusal = ""});
  }
  return out;
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
  const AlgorithmChecker checker = operator_table().get(settings.operation).check.checker(settings);
  if (!global_options().plugins.empty()) print_remark(cat("note: ", kPluginWarning));
  const bool one = !arguments.name.empty();
  const std::vector<CheckTask> tasks = tasks_of(arguments);
  const bool quiet = global_options().verbosity < 0;
  const bool shows = Progress::mode_for(quiet) == Progress::Mode::bar;
  const bool to_stdout = arguments.json == "-";
  std::vector<CheckRow> rows;
  for (const CheckTask& task : tasks) {
    const std::string title = one ? ""
                                  : cat("[", rows.size() + 1, "/", tasks.size(), "] ", task.plugin,
                                        task.plugin.empty() ? "" : " ", task.algorithm);
    if (!one && !shows) print_remark(title);
    rows.push_back(run_check(
        task, settings, checker,
        [&](const std::string& problem) { return command_for(settings.operation, task, problem); },
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
  const auto add_options = [&](CommandLine& line, const OperatorCheck& check) {
    line.add_flag("--quick", settings.quick,
                  "fewer problems: small ones, edge cases and some random ones");
    line.add_option("--problem", settings.problem,
                    cat("one problem only, with all kinds of numbers: ", check.problem))
        ->type_name("TEXT");
    line.add_option("--require", arguments->require,
                    cat("features that the algorithm must accept: all, or some of ",
                        join(check.features, ","), " (default: none; what it accepts is checked)"))
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
  app.require_subcommand(0, 1);
  for (const auto& [name, entry] : operator_table().entries()) {
    CommandLine* const line =
        app.add_subcommand(name, cat("Check algorithms of ", entry.title, "."));
    line->add_option("NAME", arguments->name,
                     "algorithm (convscope info); default: all algorithms, those of --plugin if it "
                     "is given, in a table")
        ->suggest(names_of_program(name));
    add_options(*line, entry.check);
    line->callback([arguments, operation = name] {
      arguments->settings.operation = operation;
      arguments->names_operator = true;
    });
  }
  add_options(app, operator_table().get(kPluginOperation).check);
  return [arguments] { return check(*arguments); };
}

CommandCalls calls() {
  CommandCalls out{
      .usage =
          cat("check [", operator_choice(),
              " [NAME]] [--plugin FILE|FOLDER] [--quick] [--problem TEXT] [--require NAME,...] "
              "[--max-error-growth X] [--timeout S] [--json FILE|-]"),
      .examples = operator_examples("check", &OperatorEntry::check_examples)};
  out.examples.emplace_back(
      "check --plugin submissions --require stride,padding,backward --timeout 60 --json "
      "marks.json");
  return out;
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND("check",
                           {.summary = "Check the numbers of an algorithm and diagnose its errors.",
                            .calls_of_operators = convscope::calls,
                            .order = 52,
                            .declare = convscope::declare,
                            .opens_plugins = false})
