// SPDX-License-Identifier: Apache-2.0
// bench_command.cpp: `convscope bench conv2d`: how long each convolution algorithm takes, beside
// another library and the machine's ceilings. `bench net` stands in bench_net.cpp.
#include <algorithm>
#include <iostream>
#include <memory>

#include "experiments/bench/bench_report.h"
#include "experiments/bench/peer_library.h"
#include "experiments/bench/problem_list.h"
#include "experiments/cli/bench/bench_ladder.h"
#include "experiments/cli/bench/bench_legend.h"
#include "experiments/cli/bench/bench_net.h"
#include "experiments/cli/bench/bench_remarks.h"
#include "experiments/cli/command.h"
#include "experiments/cli/measure_once.h"
#include "framework/io/atomic_file.h"
#include "framework/parallel.h"

namespace convscope {
namespace {

struct Arguments {
  std::vector<std::string> shapes, problems;
  std::string ladder;
  std::string direction;  // "": all, of a ladder the forward
  std::string algorithm = "all";
  std::string device = "cpu";
  std::string precision;
  std::string layout;
  std::string types;
  std::int64_t batch = 0;
  std::string peer;
  std::string cache = "warm";
  std::string clock = "wall";
  std::string weights = "once";
  std::string json, csv;
  double min_time = 0.2;
  int rounds = 5;
};

void check(const Arguments& arguments) {
  constexpr const char* kCommand = "bench conv2d";
  const bool no_problem = arguments.shapes.empty() && arguments.problems.empty();
  if (no_problem && arguments.ladder.empty()) {
    fail_usage(kCommand,
               "expected --shapes FILE, --problem n=8,c=64,... or --ladder NAME, got none of them");
  }
  const bool names_more = arguments.algorithm != "all" || !arguments.peer.empty() ||
                          !arguments.precision.empty() || arguments.weights != "once";
  if (!arguments.ladder.empty() && names_more) {
    fail_usage(kCommand,
               "expected --ladder without --algorithm, --peer, --precision and --weights because "
               "its rungs say what is timed, got more than --ladder");
  }
  if (!arguments.types.empty() && no_problem) {
    fail_usage(
        kCommand,
        "expected --types with --problem or --shapes because the problem of a ladder has its "
        "own types, got --ladder alone");
  }
  const bool says_types = !arguments.precision.empty() || !arguments.layout.empty();
  if (!arguments.types.empty() && says_types) {
    fail_usage(
        kCommand,
        "expected --types without --precision and --layout because integers have one layout, "
        "got both");
  }
  if (arguments.cache != "warm" && arguments.cache != "cold") {
    fail_usage(kCommand, cat("expected --cache warm or cold, got '", arguments.cache, "'"));
  }
  if (arguments.clock != "wall" && arguments.clock != "cpu") {
    fail_usage(kCommand, cat("expected --clock wall or cpu, got '", arguments.clock, "'"));
  }
  if (arguments.clock == "cpu" && (num_threads() != 1 || arguments.device != "cpu")) {
    fail_usage(kCommand,
               "expected --threads 1 and device cpu because --clock cpu counts one thread's time");
  }
  if (!(arguments.min_time > 0 && arguments.min_time <= 600)) {
    fail_usage(kCommand, cat("expected --min-time above 0 and at most 600 seconds, got ",
                             arguments.min_time));
  }
  if (arguments.batch < 0) {
    fail_usage(kCommand, cat("expected --batch of at least 1, got ", arguments.batch));
  }
  if (arguments.rounds < 1 || arguments.rounds > 100000) {
    fail_usage(kCommand, cat("expected --rounds from 1 to 100000, got ", arguments.rounds));
  }
}

void set_precision(Conv2dProblem& problem, const std::string& precision) {
  problem.dtype = precision == "bf16" ? DType::bf16 : precision == "f16" ? DType::f16 : DType::f32;
  problem.math = precision == "tf32" ? MathMode::tf32 : MathMode::f32;
}

// Channels, image and outputs that are left out would be 1: numbers for a convolution that nobody
// means. No kernel is one of 1x1, as in experiments/shapes; half a kernel is a mistake.
void require_sizes(const std::string& text) {
  std::vector<std::string> missing = {"c", "h", "w", "k", "r", "s"};
  for (const std::string& word : split_commas(text)) {
    std::erase(missing, word.substr(0, word.find('=')));
  }
  const auto is_kernel = [](const std::string& key) { return key == "r" || key == "s"; };
  if (std::ranges::count_if(missing, is_kernel) == 2) std::erase_if(missing, is_kernel);
  if (missing.empty()) return;
  fail_usage("bench conv2d",
             cat("expected --problem with c, h, w and k, and a kernel with r and s, because these "
                 "sizes have no default, got '",
                 text, "' without ", join(missing)));
}

// "": their own. "both": each problem in nchw, then blocked.
void set_layouts(const std::string& layout, std::vector<Conv2dProblem>& problems) {
  if (layout.empty()) return;
  std::vector<Conv2dProblem> out;
  for (Conv2dProblem& problem : problems) {
    for (const ActivationLayout one : kActivationLayouts) {
      if (layout == "both" ? one == ActivationLayout::blocked_y : layout != name_of(one)) continue;
      problem.layout = one;
      out.push_back(problem);
    }
  }
  problems = std::move(out);
}

OperandTypes parsed_types(const std::string& text) {
  OperandTypes out;
  if (OperandTypes::parse(text, out) && is_code(out.w)) return out;
  fail_usage("bench conv2d", cat("expected --types of x, w, the sums and y with w of i8, as "
                                 "u8:i8:i32:u8, got '",
                                 text, "'"));
}

// Codes lie in blocks of channels; f32 images of a first layer, which the kernel rounds, do not.
// Layers of few channels are such first layers, on a CPU; returns how many there are.
int set_types(OperandTypes types, Device device, std::vector<Conv2dProblem>& problems) {
  constexpr std::int64_t kMostColours = 4;
  int first_layers = 0;
  for (Conv2dProblem& problem : problems) {
    const bool first = device.type == DeviceType::cpu && is_code(types.x) &&
                       problem.c <= kMostColours && problem.groups == 1;
    first_layers += first ? 1 : 0;
    problem.types = types;
    if (first) problem.types->x = DType::f32;
    problem.dtype = problem.types->x;
    problem.layout =
        problem.types->x == DType::f32 ? ActivationLayout::blocked_y : ActivationLayout::blocked;
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
             " of at most 4 channels taken for the first of a network: ", types.text(),
             " in layout blocked_y, its images are rounded in each call"));
}

std::vector<Conv2dProblem> problems_of(const Arguments& arguments) {
  std::vector<Conv2dProblem> out;
  for (const std::string& path : arguments.shapes) {
    for (const Conv2dProblem& problem : problems_of_file(path)) out.push_back(problem);
  }
  for (const std::string& text : arguments.problems) {
    out.push_back(Conv2dProblem::parse(text));
    require_sizes(text);
  }
  set_layouts(arguments.layout, out);
  const Device device = Device::parse(arguments.device);
  set_types(arguments.types, device, out);
  for (Conv2dProblem& problem : out) {
    if (!arguments.precision.empty()) set_precision(problem, arguments.precision);
    if (arguments.batch > 0) problem.n = arguments.batch;
    check_can_be_timed(problem, device);
  }
  return out;
}

void check_files(const Arguments& arguments) {
  for (const std::string& path : {arguments.json, arguments.csv}) {
    if (!path.empty()) check_writable(path);
  }
}

void write_files(const Arguments& arguments, const std::vector<Conv2dBenchGroup>& groups,
                 const Conv2dBenchSettings& settings) {
  if (!arguments.json.empty()) write_file(arguments.json, bench_json(groups, settings));
  if (!arguments.csv.empty()) write_file(arguments.csv, bench_csv(groups, settings));
}

// Integers are computed forward alone; what is asked for is tried all the same.
using Tasks = std::vector<std::pair<Conv2dProblem, Direction>>;
Tasks tasks_of(const Conv2dBenchOptions& options, bool asked) {
  Tasks out;
  for (const Conv2dProblem& problem : options.problems) {
    for (const Direction direction : options.directions) {
      if (asked || !problem.types || direction == Direction::forward) {
        out.emplace_back(problem, direction);
      }
    }
  }
  return out;
}

void warn_of_unmeasured_bytes(const Tasks& tasks, const CpuCeilings& ceilings) {
  const bool bytes =
      std::ranges::any_of(tasks, [](const auto& task) { return is_code(factors_of(task.first)); });
  if (!bytes || ceilings.int8.one_thread > 0) return;
  remark(cat("the peak of products of bytes was not measured on this machine; roof takes ",
             peak_of_bytes(), " times that of f32 (convscope info --measure)"));
}

int bench(const Arguments& arguments) {
  check(arguments);
  const bool climbs = !arguments.ladder.empty();
  Conv2dBenchOptions options;
  options.directions = parse_directions(!arguments.direction.empty() ? arguments.direction
                                        : climbs                     ? "forward"
                                                                     : "all");
  options.problems = problems_of(arguments);
  options.device = Device::parse(arguments.device);
  backend_of(options.device);  // an error when it is not there
  options.algorithms = algorithms_named(arguments.algorithm, options.device);
  options.only_auto = arguments.algorithm == "auto";
  options.cold = arguments.cache == "cold";
  options.cpu_clock = arguments.clock == "cpu";
  options.weights = arguments.weights == "often" ? WeightUse::often : WeightUse::once;
  options.min_seconds = arguments.min_time;
  options.least_samples = arguments.rounds;
  if (!arguments.peer.empty()) {
    options.peer = &open_peer(arguments.peer);
    remark(age_remark(*options.peer));
  }
  Conv2dBenchSettings settings{.device = options.device,
                               .threads = num_threads(),
                               .cold = options.cold,
                               .cpu_clock = options.cpu_clock,
                               .weights = options.weights,
                               .min_seconds = options.min_seconds,
                               .least_samples = options.least_samples,
                               .peer_name = options.peer == nullptr ? "" : options.peer->name,
                               .peer_version = options.peer == nullptr ? "" : options.peer->version,
                               .ceilings = {}};
  measure_this_machine_once();
  if (climbs) {
    return bench_ladders({.ladders = arguments.ladder,
                          .problems = options.problems,
                          .directions = options.directions,
                          .batch = arguments.batch,
                          .json = arguments.json,
                          .csv = arguments.csv},
                         settings);
  }
  std::vector<Conv2dBenchGroup> groups;
  check_files(arguments);  // a path that cannot be written fails at once
  const Tasks tasks = tasks_of(options, !arguments.direction.empty());
  if (options.device.type == DeviceType::cpu) {
    settings.ceilings = options.ceilings = ceilings_here();
    warn_of_unmeasured_bytes(tasks, *options.ceilings);
  }
  warn_of_load(num_threads());
  BenchRemarks remarks(tasks.size());
  for (const auto& [problem, direction] : tasks) {
    remarks.begin(cat(problem.text(), " ", name_of(direction)));
    groups.push_back(bench_conv2d(options, problem, direction,
                                  [&](const std::string& what) { remarks.say(what); }));
    remarks.clear();
    std::cout << bench_table(groups.back()) << "\n" << std::flush;
    write_files(arguments, groups, settings);  // an interrupted benchmark keeps what it has
  }
  std::cout << bench_summary(groups) << bench_legend(options.peer != nullptr);
  if (options.weights == WeightUse::often) {
    std::cout
        << "--weights often: they are prepared before the calls, so prepare is no part of them.\n";
  }
  if (any_wrong(groups)) return exit_code(ErrorKind::kRun);
  const bool all_refused = std::ranges::all_of(groups, [](const Conv2dBenchGroup& group) {
    return group.rows.empty() && group.skipped.empty();
  });
  if (all_refused) {
    fail(ErrorKind::kUnavailable, "bench conv2d",
         "expected an algorithm that accepts one of the problems, but each was refused");
  }
  return 0;
}

std::function<int()> declare(CommandLine& app) {
  auto arguments = std::make_shared<Arguments>();
  CommandLine* const conv = app.add_subcommand("conv2d", "convolution algorithms");
  app.require_subcommand(1);
  conv->add_option("--shapes", arguments->shapes, "file with one problem in a line")
      ->type_name("FILE");
  conv->add_option("--problem", arguments->problems,
                   "n=8,c=64,h=56,w=56,k=64,r=3,s=3,stride=1,pad=1,dilation=1,groups=1; c, h, w "
                   "and k must be there")
      ->type_name("TEXT");
  conv->add_option("--direction", arguments->direction,
                   "all, or some of forward,backward_data,backward_weight (default: all; of a "
                   "ladder: forward)");
  conv->add_option("--ladder", arguments->ladder,
                   "rungs of one algorithm from its lesson to the fastest, on the ladder's own "
                   "problem unless one is given; all, or names joined by commas")
      ->type_name("NAME,...");
  conv->add_option("--algorithm", arguments->algorithm, "all, auto or names joined by commas")
      ->capture_default_str();
  conv->add_option("--device", arguments->device, "cpu, cuda or cuda:<index>")
      ->capture_default_str();
  conv->add_option("--precision", arguments->precision,
                   "of all problems: f32, tf32, bf16 or f16 (the last three: cuda)")
      ->type_name("TEXT:{f32,tf32,bf16,f16}")
      ->one_of({"f32", "tf32", "bf16", "f16"});
  conv->add_option(
          "--layout", arguments->layout,
          "of all images in memory: nchw, blocked (16 channels of a pixel side by side), blocked_y "
          "(blocked y, x as nchw), or both: nchw and blocked")
      ->type_name("TEXT:{nchw,blocked,blocked_y,both}")
      ->one_of({"nchw", "blocked", "blocked_y", "both"});
  conv->add_option(
          "--types", arguments->types,
          "of all problems: of x, w, the sums and y, as u8:i8:i32:u8, in the layout that "
          "integers have; on the CPU layers of at most 4 channels take f32 images. Forward alone")
      ->type_name("TEXT");
  conv->add_option("--batch", arguments->batch, "of all problems, instead of their own");
  conv->add_option("--peer", arguments->peer, "another library to time beside ours: onednn");
  conv->add_option("--cache", arguments->cache, "warm, or cold: flushed before each run")
      ->capture_default_str();
  conv->add_option("--clock", arguments->clock,
                   "wall, or cpu: time on the core, for --threads 1 on a busy machine")
      ->capture_default_str();
  conv->add_option("--weights", arguments->weights,
                   "once: prepared in each call, as in training; often: before the timing, as in "
                   "inference (another library's own layouts have them so, too)")
      ->type_name("TEXT:{once,often}")
      ->one_of({"once", "often"})
      ->capture_default_str();
  conv->add_option("--min-time", arguments->min_time,
                   "seconds that each algorithm is timed for on each problem")
      ->capture_default_str();
  conv->add_option("--rounds", arguments->rounds, "least number of timings of each algorithm")
      ->capture_default_str();
  conv->add_option("--json", arguments->json, "where to write all of it as JSON");
  conv->add_option("--csv", arguments->csv, "where to write the rows as CSV");
  auto other = std::make_shared<std::function<int()>>();
  declare_bench_net(app, *other);
  return [arguments, other] { return *other ? (*other)() : bench(*arguments); };
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND(
    "bench",
    {.summary = "time convolution algorithms, another library beside them, or whole networks",
     .usage = "bench conv2d --shapes FILE | --problem TEXT | --ladder NAME [...]  |  bench net "
              "CONFIG|MODEL|RUN [...]",
     .examples = {"bench conv2d --shapes experiments/shapes/resnet18.txt --threads 1",
                  "bench conv2d --problem n=8,c=64,h=56,w=56,k=64,r=3,s=3,pad=1 "
                  "--direction forward --peer onednn --json bench.json",
                  "bench conv2d --shapes experiments/shapes/resnet18.txt --types u8:i8:i32:u8 "
                  "--weights often --peer onednn",
                  "bench conv2d --ladder winograd --json ladder.json",
                  "bench net resnet18 --batch 1,8 --mode inference"},
     .order = 52,
     .declare = convscope::declare})
