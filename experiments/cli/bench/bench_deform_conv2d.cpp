// SPDX-License-Identifier: Apache-2.0
// bench_deform_conv2d.cpp: `convscope bench deform_conv2d`: times the algorithms of deformable
// convolution, with normally distributed offsets.
#include "experiments/cli/bench/bench_deform_conv2d.h"

#include <memory>

#include "experiments/cli/bench/bench_against.h"
#include "experiments/cli/bench/bench_legend.h"
#include "experiments/cli/bench/bench_remarks.h"
#include "experiments/cli/bench/bench_tasks.h"
#include "experiments/cli/command.h"
#include "experiments/cli/measure_once.h"
#include "layers/deform_conv2d/algorithm.h"

namespace convscope {
namespace {

constexpr const char* kCommand = "bench deform_conv2d";

using Problem = DeformConv2dProblem;

struct DeformArguments {
  std::vector<std::string> shapes, problems;
  std::string direction = "all";
  std::string algorithm = "all";
  std::string precision, layout;
  std::int64_t batch = 0;
  TimingArguments timing;
  AgainstOptions against;
};

std::vector<Problem> problems_of(const DeformArguments& arguments, Device device) {
  std::vector<Problem> out =
      problems_given<Problem>(kCommand, arguments.shapes, arguments.problems);
  set_layouts(arguments.layout, out);
  set_precision(arguments.precision, out);
  for (Problem& problem : out) {
    if (arguments.batch > 0) problem.n = arguments.batch;
    const bool rounds = is_half(problem.dtype) || problem.math == MathMode::tf32;
    CONVSCOPE_CHECK(
        (problem.dtype == DType::f32 && !rounds) || (rounds && device.type == DeviceType::cuda),
        kCommand, "expected elements of type f32, or tf32, f16 or bf16 on cuda, got ",
        problem.text(), " on ", device.str());
  }
  return out;
}

int bench_deform(const DeformArguments& arguments) {
  if (arguments.shapes.empty() && arguments.problems.empty()) {
    fail_usage(kCommand, "expected --shapes FILE or --problem n=8,c=64,..., got none of them");
  }
  check_timing(kCommand, arguments.timing);
  check_against(kCommand, arguments.against);
  const std::vector<Direction> directions = parse_directions(arguments.direction);
  BenchSettings settings = bench_settings(arguments.timing);
  settings.only_auto = arguments.algorithm == "auto";
  const std::vector<Problem> problems = problems_of(arguments, settings.device);
  const auto algorithms = algorithms_named<Problem>(kCommand, arguments.algorithm, settings.device);
  if (arguments.against.asked()) {
    measure_this_machine_once();
    return bench_against(kCommand, arguments.against, arguments.timing,
                         operator_cases("deform_conv2d", problems, directions, arguments.algorithm,
                                        arguments.timing),
                         settings.only_auto);
  }
  BenchFiles files(arguments.timing.json, arguments.timing.csv);
  measure_this_machine_once();
  if (settings.device.type == DeviceType::cpu) settings.peaks = peaks_here();
  std::vector<BenchTask> tasks;
  for (const Problem& problem : problems) {
    for (const Direction direction : directions) {
      tasks.push_back({cat(problem.text(), " ", name_of(direction)),
                       [&settings, &algorithms, problem, direction](const BenchProgress& progress) {
                         return bench_operator(settings, problem, direction, algorithms, progress);
                       }});
    }
  }
  std::string legend = bench_legend(/*with_baseline=*/false);
  if (settings.weights == WeightUse::often) legend += often_legend();
  return run_bench_tasks(kCommand, tasks, files, report_settings(settings, "deform_conv2d"),
                         legend);
}

}  // namespace

void declare_bench_deform_conv2d(CommandLine& bench, std::function<int()>& run) {
  auto arguments = std::make_shared<DeformArguments>();
  CommandLine* const deform =
      bench.add_subcommand("deform_conv2d", "Time the algorithms of deformable convolution.");
  deform
      ->add_option("--shapes", arguments->shapes,
                   "file with one problem per line, or the name of a shipped file")
      ->type_name("FILE");
  deform
      ->add_option("--problem", arguments->problems,
                   "one problem: "
                   "n=8,c=64,h=56,w=56,k=64,r=3,s=3,stride=1,pad=1,dilation=1,groups=1,offset_"
                   "groups=1,mask=1; c, h, w and k are required")
      ->type_name("TEXT");
  deform
      ->add_option("--direction", arguments->direction,
                   "directions: all, or some of forward,backward_data,backward_weight")
      ->capture_default_str();
  deform
      ->add_option("--algorithm", arguments->algorithm,
                   "algorithms: all, auto or names joined by commas")
      ->capture_default_str();
  deform
      ->add_option(
          "--precision", arguments->precision,
          "precision for all problems: f32, tf32, bf16 or f16 (tf32, bf16 and f16: cuda only)")
      ->one_of({"f32", "tf32", "bf16", "f16"});
  deform->add_option("--batch", arguments->batch,
                     "batch size for all problems (default: their own)");
  deform
      ->add_option("--layout", arguments->layout,
                   "memory layout of all images: nchw, nchw16c, or both")
      ->one_of({"nchw", "nchw16c", "both"});
  add_timing_options(*deform, arguments->timing);
  add_against_options(*deform, arguments->against);
  deform->callback([arguments, &run] { run = [arguments] { return bench_deform(*arguments); }; });
}

}  // namespace convscope
