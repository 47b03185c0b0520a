// SPDX-License-Identifier: Apache-2.0
// check_command.cpp: `convscope check`: the tests' matrix on one algorithm, and what seems to be
// wrong with it. It runs in a process of its own, so that a crash becomes a sentence.
#include <cstdio>
#include <memory>

#include "experiments/check/check_algorithm.h"
#include "experiments/cli/command.h"
#include "experiments/config/shipped/shipped_configs.h"
#include "experiments/plugins/child_process.h"
#include "experiments/plugins/plugins.h"
#include "experiments/trainer/progress.h"
#include "layers/dispatch/plugin/plugin_cards.h"

namespace convscope {
namespace {

constexpr unsigned kSecondsForOneCase = 120;

struct Arguments {
  std::string name, problem;
  bool quick = false;
};

// What shows a fault again, as one would type it.
std::string command_for(const Arguments& arguments, const CheckReport& report) {
  if (!report.fault) return "";
  std::string out = cat("convscope check conv2d ", arguments.name);
  const PluginCard* const from = plugin_of_card("conv2d", arguments.name);
  if (from != nullptr) out += cat(" --plugin ", from->file);
  Conv2dProblem problem = report.fault->problem;
  problem.layout = ActivationLayout::nchw;  // all layouts are checked
  return cat(out, " --problem ", problem.text());
}

int check(const Arguments& arguments) {
  const Conv2dAlgorithm& card =
      conv2d_algorithms(DeviceType::cpu).get(arguments.name, ErrorKind::kUnavailable);
  CheckOptions options{.quick = arguments.quick, .problems = {}, .shapes_folder = shipped_shapes()};
  if (!arguments.problem.empty()) {
    options.problems = {Conv2dProblem::parse(arguments.problem)};
    options.problems[0].check();
  }
  const bool shows = Progress::mode_for(global_options().verbosity < 0) == Progress::Mode::bar;
  const ChildEnd end = run_in_child(
      [&](const ChildNote& note) {
        options.note = [&](const std::string& doing) {
          note(doing);
          if (shows) std::fprintf(stderr, "\r\033[K%.100s", doing.c_str());
        };
        const CheckReport report = check_algorithm(card, options);
        if (shows) std::fprintf(stderr, "\r\033[K");
        print_result(report_text(card, report, command_for(arguments, report)));
        return report.passes() ? 0 : exit_code(ErrorKind::kRun);
      },
      kSecondsForOneCase);
  if (end.finished && end.said.empty()) return end.code;
  if (shows) std::fprintf(stderr, "\r\033[K");
  if (end.finished) {
    print_result(cat("wrong  ", arguments.name, ": it ends with an exception: ", end.said,
                     "\nfirst  ", end.doing, "\n"));
  } else {
    print_result(cat("wrong  ", arguments.name, ": it ", end.cause,
                     ": an index may lead far outside of an array, or a loop may not end\nfirst  ",
                     end.doing, "\n"));
  }
  return exit_code(ErrorKind::kRun);
}

std::function<int()> declare(CommandLine& app) {
  auto arguments = std::make_shared<Arguments>();
  CommandLine* const conv = app.add_subcommand("conv2d", "an algorithm of a convolution");
  app.require_subcommand(1);
  conv->add_option("NAME", arguments->name, "the algorithm (convscope info)")
      ->required()
      ->suggest(conv2d_algorithms(DeviceType::cpu).names());
  conv->add_flag("--quick", arguments->quick, "small problems, edge cases and some random ones");
  conv->add_option("--problem", arguments->problem,
                   "this one alone, with all kinds of numbers: n=2,c=3,h=9,w=9,k=4,r=3,s=3,pad=1")
      ->type_name("TEXT");
  return [arguments] { return check(*arguments); };
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND(
    "check",
    {.summary = "does an algorithm compute the right numbers? what seems to be wrong?",
     .usage = "check conv2d NAME [--plugin FILE] [--quick] [--problem TEXT]",
     .examples = {"check conv2d winograd_f4x3", "check conv2d mine --plugin mine/build/mine.so",
                  "check conv2d mine --plugin mine/build/mine.so --quick"},
     .order = 52,
     .declare = convscope::declare})
