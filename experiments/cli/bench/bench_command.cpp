// SPDX-License-Identifier: Apache-2.0
// bench_command.cpp: `convscope bench conv2d`: times the convolution algorithms, next to another
// library and the machine's peaks. `bench deform_conv2d` is in bench_deform_conv2d.cpp, `bench
// sparse_conv` in bench_sparse_conv.cpp, `bench net` in bench_net.cpp, `bench sparse_net` in
// bench_sparse_net.cpp, `bench exchange` in bench_exchange.cpp.
#include <algorithm>
#include <memory>

#include "experiments/bench/baseline_library.h"
#include "experiments/bench/contender.h"
#include "experiments/cli/bench/bench_against.h"
#include "experiments/cli/bench/bench_deform_conv2d.h"
#include "experiments/cli/bench/bench_exchange.h"
#include "experiments/cli/bench/bench_ladder.h"
#include "experiments/cli/bench/bench_legend.h"
#include "experiments/cli/bench/bench_net.h"
#include "experiments/cli/bench/bench_remarks.h"
#include "experiments/cli/bench/bench_sparse_conv.h"
#include "experiments/cli/bench/bench_sparse_net.h"
#include "experiments/cli/bench/bench_tasks.h"
#include "experiments/cli/command.h"
#include "experiments/cli/measure_once.h"
#include "framework/parallel.h"
#include "layers/dispatch/half_problem.h"

namespace convscope {
namespace {

struct Arguments {
  std::vector<std::string> shapes, problems;
  std::string ladder;
  std::string direction;  // "": all; for a ladder: forward
  std::string algorithm = "all";
  std::string precision;
  std::string layout;
  std::string types;
  std::int64_t batch = 0;
  std::string baseline;
  TimingArguments timing;
  AgainstOptions against;
};

constexpr const char* kCommand = "bench conv2d";

void check(const Arguments& arguments) {
  const bool no_problem = arguments.shapes.empty() && arguments.problems.empty();
  if (no_problem && arguments.ladder.empty()) {
    fail_usage(kCommand,
               "expected --shapes FILE, --problem n=8,c=64,... or --ladder NAME, got none of them");
  }
  const bool names_more = arguments.algorithm != "all" || !arguments.baseline.empty() ||
                          !arguments.precision.empty() || arguments.timing.weights != "once";
  if (!arguments.ladder.empty() && names_more) {
    fail_usage(
        kCommand,
        "expected --ladder without --algorithm, --baseline, --precision and --weights because "
        "its rungs say what is timed, got more than --ladder");
  }
  if (!arguments.types.empty() && no_problem) {
    fail_usage(kCommand,
               "expected --types with --problem or --shapes because the problem of a ladder has "
               "its own types, got only --ladder");
  }
  const bool says_types = !arguments.precision.empty() || !arguments.layout.empty();
  if (!arguments.types.empty() && says_types) {
    fail_usage(
        kCommand,
        "expected --types without --precision and --layout because integers have one layout, "
        "got both");
  }
  check_timing(kCommand, arguments.timing);
  check_against(kCommand, arguments.against);
  if (arguments.against.asked() && (!arguments.ladder.empty() || !arguments.baseline.empty())) {
    fail_usage(
        kCommand,
        "expected --against without --ladder and --baseline because it compares the rows of two "
        "builds, got one of them");
  }
  if (arguments.batch < 0) {
    fail_usage(kCommand, cat("expected --batch of at least 1, got ", arguments.batch));
  }
}

OperandTypes parsed_types(const std::string& text) {
  OperandTypes out;
  if (OperandTypes::parse(text, out) && is_code(out.w)) return out;
  fail_usage("bench conv2d", cat("expected --types of x, w, the sums and y with w of i8, as "
                                 "u8:i8:i32:u8, got '",
                                 text, "'"));
}

// Sets the operand types of the problems. Quantised images are stored in NCHW16c. On a CPU, a layer
// with few input channels is treated as the first of a network: its images are NCHW f32, and the
// kernel quantises them. Returns the number of such layers.
int set_types(OperandTypes types, Device device, std::vector<Conv2dProblem>& problems) {
  constexpr std::int64_t kMaxColours = 4;
  int first_layers = 0;
  for (Conv2dProblem& problem : problems) {
    const bool first = device.type == DeviceType::cpu && is_code(types.x) &&
                       problem.c <= kMaxColours && problem.groups == 1;
    first_layers += first ? 1 : 0;
    problem.types = types;
    if (first) problem.types->x = DType::f32;
    problem.dtype = problem.types->x;
    problem.layout =
        problem.types->x == DType::f32 ? ActivationLayout::nchw16c_y : ActivationLayout::nchw16c;
  }
  return first_layers;
}

void set_types(const std::string& text, Device device, std::vector<Conv2dProblem>& problems) {
  if (text.empty()) return;
  OperandTypes types = parsed_types(text);
  const int first_layers = set_types(types, device, problems);
  if (first_layers == 0) return;
  types.x = DType::f32;
  remark(cat(first_layers, first_layers == 1 ? " layer" : " layers",
             " with at most 4 channels treated as the first of a network: ", types.text(),
             " in layout nchw16c_y; images are rounded in each call"));
}

std::vector<Conv2dProblem> problems_of(const Arguments& arguments) {
  auto out = problems_given<Conv2dProblem>(kCommand, arguments.shapes, arguments.problems);
  set_layouts(arguments.layout, out);
  const Device device = Device::parse(arguments.timing.device);
  set_types(arguments.types, device, out);
  set_precision(arguments.precision, out);
  for (Conv2dProblem& problem : out) {
    if (arguments.batch > 0) problem.n = arguments.batch;
    // The weights stay f32, as in a compiled step.
    const bool last = problem.layout == ActivationLayout::nhwc;
    if (last && is_half(problem.dtype) && !problem.types) problem = with_nhwc(problem);
    check_can_be_timed(problem, device);
  }
  return out;
}

// Integer problems run the forward direction by default. A direction that was requested is tried,
// so that its refusal is shown.
using Tasks = std::vector<std::pair<Conv2dProblem, Direction>>;
Tasks tasks_of(const Conv2dBenchOptions& options, bool asked) {
  Tasks out;
  for (const Conv2dProblem& problem : options.problems) {
    for (const Direction direction : options.directions) {
      if (asked || !holds_codes(problem) || direction == Direction::forward) {
        out.emplace_back(problem, direction);
      }
    }
  }
  return out;
}

void warn_of_unmeasured_bytes(const Tasks& tasks, const CpuPeaks& peaks) {
  const bool bytes = std::ranges::any_of(
      tasks, [](const auto& task) { return is_code(operand_type_of(task.first)); });
  if (!bytes || peaks.int8.one_thread > 0) return;
  remark(cat("the peak of int8 products was not measured on this machine; roof assumes ",
             peak_of_bytes(), " times that of f32 (convscope info --measure)"));
}

std::vector<BenchWords> cases_of(const Arguments& arguments, const Conv2dBenchOptions& options) {
  std::vector<BenchWords> out;
  for (const auto& [problem, direction] : tasks_of(options, !arguments.direction.empty())) {
    out.push_back(
        operator_case("conv2d", problem, direction, arguments.algorithm, arguments.timing));
  }
  return out;
}

int bench(const Arguments& arguments) {
  check(arguments);
  const bool climbs = !arguments.ladder.empty();
  Conv2dBenchOptions options;
  options.directions = parse_directions(!arguments.direction.empty() ? arguments.direction
                                        : climbs                     ? "forward"
                                                                     : "all");
  options.problems = problems_of(arguments);
  static_cast<BenchSettings&>(options) = bench_settings(arguments.timing);
  options.algorithms = algorithms_named(arguments.algorithm, options.device);
  options.only_auto = arguments.algorithm == "auto";
  if (!arguments.baseline.empty()) {
    options.baseline = &open_baseline(arguments.baseline);
    remark(age_remark(*options.baseline));
  }
  BenchReportSettings settings = report_settings(options, "conv2d");
  if (options.baseline != nullptr) {
    settings.baseline_name = options.baseline->name;
    settings.baseline_version = options.baseline->version;
  }
  if (arguments.against.asked()) {
    measure_this_machine_once();
    return bench_against(kCommand, arguments.against, arguments.timing,
                         cases_of(arguments, options), options.only_auto);
  }
  BenchFiles files(arguments.timing.json, arguments.timing.csv);
  measure_this_machine_once();
  if (climbs) {
    return bench_ladders({.ladders = arguments.ladder,
                          .problems = options.problems,
                          .directions = options.directions,
                          .batch = arguments.batch},
                         files, settings);
  }
  const Tasks tasks = tasks_of(options, !arguments.direction.empty());
  if (options.device.type == DeviceType::cpu) {
    settings.peaks = options.peaks = peaks_here();
    warn_of_unmeasured_bytes(tasks, *options.peaks);
  }
  std::vector<BenchTask> work;
  for (const auto& [problem, direction] : tasks) {
    work.push_back({cat(problem.text(), " ", name_of(direction)),
                    [&options, problem = problem, direction = direction](const BenchProgress& say) {
                      return bench_conv2d(options, problem, direction, say);
                    }});
  }
  std::string legend = bench_legend(options.baseline != nullptr);
  if (options.weights == WeightUse::often) legend += often_legend();
  return run_bench_tasks(kCommand, work, files, settings, legend);
}

std::function<int()> declare(CommandLine& app) {
  auto arguments = std::make_shared<Arguments>();
  CommandLine* const conv = app.add_subcommand("conv2d", "Time the algorithms of convolution.");
  app.require_subcommand(1);
  conv->add_option("--shapes", arguments->shapes,
                   "file with one problem per line, or the name of a shipped file")
      ->type_name("FILE");
  conv->add_option(
          "--problem", arguments->problems,
          "one problem: n=8,c=64,h=56,w=56,k=64,r=3,s=3,stride=1,pad=1,dilation=1,groups=1; c, h, "
          "w and k are required")
      ->type_name("TEXT");
  conv->add_option("--direction", arguments->direction,
                   "directions: all, or some of forward,backward_data,backward_weight (default "
                   "all; for a ladder: forward)");
  conv->add_option(
          "--ladder", arguments->ladder,
          "ladder to climb: versions of one algorithm from its lesson to the fastest kernel, on "
          "the ladder's own problem unless one is given; all, or names joined by commas")
      ->type_name("NAME,...");
  conv->add_option("--algorithm", arguments->algorithm,
                   "algorithms: all, auto or names joined by commas")
      ->capture_default_str();
  conv->add_option(
          "--precision", arguments->precision,
          "precision for all problems: f32, tf32, bf16 or f16 (tf32, bf16 and f16: cuda only)")
      ->one_of({"f32", "tf32", "bf16", "f16"});
  conv->add_option(
          "--layout", arguments->layout,
          "memory layout of all images: nchw, nchw16c, nchw16c_y (x in nchw, y in nchw16c), nhwc "
          "(with fp16/bf16 images the weights are f32, as in a training step), or both: "
          "nchw and nchw16c")
      ->one_of({"nchw", "nchw16c", "nchw16c_y", "nhwc", "both"});
  conv->add_option("--types", arguments->types,
                   "integer types of x, w, the accumulators and y, such as u8:i8:i32:u8; forward "
                   "only; on the CPU, layers with at most 4 channels take f32 images")
      ->type_name("TEXT");
  conv->add_option("--batch", arguments->batch, "batch size for all problems (default: their own)");
  conv->add_option("--baseline", arguments->baseline, "another library to time, onednn");
  conv->add_former_name("--peer", "--baseline", arguments->baseline);
  add_timing_options(*conv, arguments->timing);
  add_against_options(*conv, arguments->against);
  auto other = std::make_shared<std::function<int()>>();
  declare_bench_deform_conv2d(app, *other);
  declare_bench_sparse_conv(app, *other);
  declare_bench_sparse_net(app, *other);
  declare_bench_net(app, *other);
  declare_bench_exchange(app, *other);
  return [arguments, other] { return *other ? (*other)() : bench(*arguments); };
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND(
    "bench",
    {.summary = "Time algorithms, other libraries or whole networks.",
     .usage = "bench conv2d --shapes FILE|--problem TEXT|--ladder NAME [options]\n"
              "bench deform_conv2d|sparse_conv --shapes FILE|--problem TEXT [options]\n"
              "bench net CONFIG|MODEL|RUN [KEY=VALUE...] [options]\n"
              "bench sparse_net|exchange [options]",
     .examples = {"bench conv2d --shapes experiments/shapes/resnet18.txt --threads 1",
                  "bench conv2d --problem n=8,c=64,h=56,w=56,k=64,r=3,s=3,pad=1 "
                  "--direction forward --baseline onednn --json bench.json",
                  "bench conv2d --shapes experiments/shapes/resnet18.txt --types u8:i8:i32:u8 "
                  "--weights often --baseline onednn",
                  "bench conv2d --ladder winograd --json ladder.json",
                  "bench conv2d --shapes resnet18 --algorithm auto --against /usr/bin/convscope "
                  "--fail-above 1.10",
                  "bench deform_conv2d --shapes experiments/shapes/deform.txt --threads 1",
                  "bench sparse_conv --shapes experiments/shapes/sparse.txt --threads 1",
                  "bench sparse_net --device cuda --precision f32,f16 --json sparse_net.json",
                  "bench net resnet18 --batch 1,8 --mode inference"},
     .order = 52,
     .group = "Study algorithms",
     .declare = convscope::declare})
