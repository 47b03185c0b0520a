// SPDX-License-Identifier: Apache-2.0
// check_command.cpp: `convscope check`: the tests' matrix on one algorithm, and what seems to be
// wrong with it. It runs in a process of its own, so that a crash becomes a sentence.
#include <cstdio>
#include <memory>

#include "experiments/check/check_algorithm.h"
#include "experiments/cli/command.h"
#include "experiments/config/shipped/shipped_configs.h"
#include "experiments/plugins/child_process.h"
#include "experiments/trainer/progress.h"

namespace convscope {
namespace {

constexpr unsigned kSecondsForOneCase = 120;

struct Arguments {
  std::string name, problem;
  bool quick = false;
};

// What shows a fault again, as one would type it.
std::string command_for(const Arguments& arguments, const std::string& problem) {
  std::string out = cat("convscope check conv2d ", arguments.name);
  for (const std::string& plugin : global_options().plugins) out += cat(" --plugin ", plugin);
  return cat(out, " --problem ", problem);
}
std::string command_for(const Arguments& arguments, const CheckReport& report) {
  if (!report.fault) return "";
  Conv2dProblem problem = report.fault->problem;
  problem.layout = ActivationLayout::nchw;  // all layouts are checked
  return command_for(arguments, problem.text());
}

// Of an algorithm that ended its process while it was `doing` "forward of n=1,..., integers".
std::string text_of_crash(const Arguments& arguments, const ChildEnd& end) {
  std::string out =
      cat("wrong  ", arguments.name, ": it ",
          end.finished        ? cat("ends with an exception: ", end.said)
          : end.took_too_long ? cat(end.cause, ": a loop may not end")
                              : cat(end.cause, ": an index may lead far outside of an array"),
          "\nfirst  ", end.doing, "\n");
  const std::size_t begin = end.doing.find(" of n="), stop = end.doing.find(", ");
  if (begin == std::string::npos || stop == std::string::npos) return out;
  const std::string problem = end.doing.substr(begin + 4, stop - begin - 4);
  return cat(out, "again  ", command_for(arguments, problem), "\n");
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
        print_screen(report_text(card, report, command_for(arguments, report)));
        return report.passes() ? 0 : exit_code(ErrorKind::kRun);
      },
      kSecondsForOneCase);
  if (end.finished && end.said.empty()) return end.code;
  if (shows) std::fprintf(stderr, "\r\033[K");
  print_screen(text_of_crash(arguments, end));
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
    {.summary = "does an algorithm compute the right numbers? what seems wrong?",
     .usage = "check conv2d NAME [--plugin FILE] [--quick] [--problem TEXT]",
     .examples = {"check conv2d winograd_f4x3", "check conv2d mine --plugin mine/build/mine.so",
                  "check conv2d mine --plugin mine/build/mine.so --quick"},
     .order = 52,
     .declare = convscope::declare})
