// SPDX-License-Identifier: Apache-2.0
// compare_command.cpp: `convscope compare`: differences between runs or benchmarks, and whether
// their results differ beyond noise.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>

#include "experiments/cli/command.h"
#include "experiments/cli/compare/gate_options.h"
#include "experiments/compare/compare_benches.h"
#include "experiments/compare/compare_runs.h"
#include "experiments/compare/comparison_text.h"
#include "framework/io/atomic_file.h"
#include "framework/io/clean_text.h"
#include "framework/io/output_place.h"

namespace convscope {
namespace {

constexpr std::size_t kMaxSides = 26;

struct CompareArguments {
  std::vector<std::string> sides;
  std::string root = "runs", format = "md", output;
  GateOptions gate;
};

CompareResult compared(const CompareArguments& arguments) {
  const auto is_file = [](const std::string& given) {  // or several joined by commas
    const std::vector<std::string> files = files_in(given);
    return !files.empty() && std::ranges::all_of(files, [](const std::string& path) {
      std::error_code error;
      return std::filesystem::exists(path, error) && !std::filesystem::is_directory(path, error);
    });
  };
  for (const std::string& given : arguments.sides) {
    for (const std::string& path : files_in(given)) {
      if (!path.ends_with(".json") || is_file(path)) continue;
      fail(ErrorKind::kIo, "compare",
           cat("expected a benchmark's JSON file, got ", path, ", which is no file"));
    }
  }
  const auto files = std::ranges::count_if(arguments.sides, is_file);
  if (files != 0 && files != static_cast<std::ptrdiff_t>(arguments.sides.size())) {
    const auto file = std::ranges::find_if(arguments.sides, is_file);
    const auto other = std::ranges::find_if_not(arguments.sides, is_file);
    fail_usage("compare", cat("expected runs or benchmark files, not both, got the file ", *file,
                              " and ", *other));
  }
  if (files == 0) {
    std::vector<RunSide> sides;
    for (const std::string& given : arguments.sides) {
      sides.push_back(read_run_side(given, arguments.root));
    }
    return compare_runs(sides);
  }
  std::vector<BenchSide> sides;
  for (const std::string& given : arguments.sides) sides.push_back(read_bench_side(given));
  return compare_benches(sides);
}

int compare(const CompareArguments& arguments) {
  const std::size_t count = arguments.sides.size();
  if (count < 2 || count > kMaxSides) {
    fail_usage("compare", cat("expected 2 to ", kMaxSides, " sides to compare, got ", count));
  }
  check_output_files({arguments.output});
  check_gate("compare", arguments.gate);
  const CompareResult comparison = compared(arguments);
  for (const std::string& text : comparison.remarks) print_remark("compare: " + text);
  if (arguments.format == "csv") {  // CSV has no place for notes
    for (const std::string& text : comparison.warnings) print_remark("compare: " + text);
  }
  const std::string text = arguments.format == "csv"     ? comparison_csv(comparison)
                           : arguments.format == "json"  ? comparison_json(comparison)
                           : arguments.format == "latex" ? comparison_latex(comparison)
                                                         : comparison_markdown(comparison);
  if (arguments.output.empty()) {
    arguments.format == "md" ? print_screen(text) : print_result(text);
    std::cout.flush();
    std::fflush(stdout);
  } else {
    write_file(arguments.output, text);
  }
  return pass_gate(comparison, arguments.gate, /*both_ways=*/true);
}

std::function<int()> declare_compare(CommandLine& app) {
  auto arguments = std::make_shared<CompareArguments>();
  app.add_option("SIDE", arguments->sides,
                 "run folders, names in runs/ (all seeds of the newest config), rows of sweeps, or "
                 "files of bench --json (several files of one program joined by commas); each side "
                 "is compared with the first")
      ->required();
  app.add_option("-r,--root", arguments->root, "folder of all runs, in which names are searched")
      ->type_name("DIR")
      ->capture_default_str();
  app.add_option("-f,--format", arguments->format, "format of the table: md, csv, json or latex")
      ->type_name("F")
      ->capture_default_str()
      ->one_of({"md", "csv", "json", "latex"});
  app.add_option("-o,--output", arguments->output, "output file (default: stdout)")
      ->type_name("FILE")
      ->output_file();
  add_gate_options(app, arguments->gate);
  return [arguments] { return compare(*arguments); };
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND(
    "compare",
    {.summary = "Compare runs or benchmarks, with tests of significance.",
     .usage = "compare SIDE SIDE... [-f md|csv|json|latex] [-o FILE] [--fail-above FACTOR] "
              "[--require-all]",
     .examples = {"compare runs/synthetic_sweep/dense--batch_size-64 "
                  "runs/synthetic_sweep/pruned--batch_size-64",
                  "compare quickstart pruned -f latex",
                  "compare before.json after.json --fail-above 1.10",
                  "compare a1.json,a2.json,a3.json b1.json,b2.json,b3.json"},
     .order = 31,
     .declare = convscope::declare_compare})
