// SPDX-License-Identifier: Apache-2.0
// bench_sparse_conv.cpp: `convscope bench sparse_conv`: times the algorithms of sparse convolution
// on generated clouds.
#include "experiments/cli/bench/bench_sparse_conv.h"

#include <memory>

#include "experiments/bench/sparse/sparse_bench.h"
#include "experiments/cli/bench/bench_against.h"
#include "experiments/cli/bench/bench_legend.h"
#include "experiments/cli/bench/bench_remarks.h"
#include "experiments/cli/bench/bench_tasks.h"
#include "experiments/cli/command.h"
#include "experiments/cli/measure_once.h"
#include "experiments/config/shipped/shipped_configs.h"

namespace convscope {
namespace {

constexpr const char* kCommand = "bench sparse_conv";

struct SparseArguments {
  std::vector<std::string> shapes, problems;
  std::string direction = "all";
  std::string algorithm = "all";
  std::string precision;
  TimingArguments timing;
  AgainstOptions against;
};

std::vector<CloudProblem> problems_of(const SparseArguments& arguments, Device device) {
  std::vector<CloudProblem> out;
  for (const std::string& path : arguments.shapes) {
    const std::string file = find_shapes(path);
    for (const CloudProblem& problem : problems_of_file<CloudProblem>(file)) out.push_back(problem);
  }
  for (const std::string& text : arguments.problems) out.push_back(CloudProblem::parse(text));
  set_precision(arguments.precision, out);
  for (const CloudProblem& problem : out) {
    const bool rounds = is_half(problem.dtype) || problem.math == MathMode::tf32;
    CONVSCOPE_CHECK(
        (problem.dtype == DType::f32 && !rounds) || (rounds && device.type == DeviceType::cuda),
        kCommand, "expected elements of type f32, or tf32, f16 or bf16 on cuda, got ",
        problem.text(), " on ", device.str());
  }
  return out;
}

// Keeps the map of the last problem, because consecutive problems often differ only in channels.
class LastMap {
 public:
  LastMap(bool cpu_clock, Device device) : cpu_clock_(cpu_clock), device_(device) {}
  const CloudMap& of(const CloudProblem& problem, const BenchProgress& progress) {
    if (map_ == nullptr || problem.map_text() != text_) {
      progress("drawing the cloud");
      map_.reset();
      map_ = std::make_unique<CloudMap>(problem, cpu_clock_, device_);
      text_ = problem.map_text();
    }
    return *map_;
  }

 private:
  bool cpu_clock_;
  Device device_;
  std::string text_;
  std::unique_ptr<CloudMap> map_;
};

int bench_sparse(const SparseArguments& arguments) {
  if (arguments.shapes.empty() && arguments.problems.empty()) {
    fail_usage(kCommand,
               "expected --shapes FILE or --problem cloud=shell,sites=10000,..., got "
               "none of them");
  }
  check_timing(kCommand, arguments.timing);
  check_against(kCommand, arguments.against);
  const std::vector<Direction> directions = parse_directions(arguments.direction);
  BenchSettings settings = bench_settings(arguments.timing);
  settings.only_auto = arguments.algorithm == "auto";
  const std::vector<CloudProblem> problems = problems_of(arguments, settings.device);
  const auto algorithms =
      algorithms_named<SparseConvProblem>(kCommand, arguments.algorithm, settings.device);
  if (arguments.against.asked()) {
    measure_this_machine_once();
    return bench_against(
        kCommand, arguments.against, arguments.timing,
        operator_cases("sparse_conv", problems, directions, arguments.algorithm, arguments.timing),
        settings.only_auto);
  }
  BenchFiles files(arguments.timing.json, arguments.timing.csv);
  measure_this_machine_once();
  if (settings.device.type == DeviceType::cpu) settings.peaks = peaks_here();
  LastMap maps(settings.cpu_clock, settings.device);
  std::vector<BenchTask> tasks;
  for (const CloudProblem& problem : problems) {
    for (const Direction direction : directions) {
      tasks.push_back(
          {cat(problem.text(), " ", name_of(direction)),
           [&settings, &algorithms, &maps, problem, direction](const BenchProgress& progress) {
             return bench_cloud(settings, problem, maps.of(problem, progress), direction,
                                algorithms, progress);
           }});
    }
  }
  std::string legend = bench_legend(/*with_baseline=*/false) + sparse_legend();
  if (settings.weights == WeightUse::often) legend += often_legend();
  return run_bench_tasks(kCommand, tasks, files, report_settings(settings, "sparse_conv"), legend);
}

}  // namespace

void declare_bench_sparse_conv(CommandLine& bench, std::function<int()>& run) {
  auto arguments = std::make_shared<SparseArguments>();
  CommandLine* const sparse = bench.add_subcommand(
      "sparse_conv", "Time the algorithms of sparse convolution on point clouds.");
  sparse
      ->add_option("--shapes", arguments->shapes,
                   "file with one problem per line, or the name of a shipped file")
      ->type_name("FILE");
  sparse
      ->add_option("--problem", arguments->problems,
                   "one problem: "
                   "cloud=shell|room|lidar|random|full|ink,sites=100000,seed=1,kernel=3x3x3,c=64,k="
                   "64; optional: batch=2, density=0.05 (for random), kind=strided|inverse, "
                   "stride=2, pad=1, dilation=2")
      ->type_name("TEXT");
  sparse
      ->add_option("--direction", arguments->direction,
                   "directions: all, or some of forward,backward_data,backward_weight")
      ->capture_default_str();
  sparse
      ->add_option("--algorithm", arguments->algorithm,
                   "algorithms: all, auto or names joined by commas")
      ->capture_default_str();
  sparse
      ->add_option(
          "--precision", arguments->precision,
          "precision for all problems: f32, tf32, bf16 or f16 (tf32, bf16 and f16: cuda only)")
      ->one_of({"f32", "tf32", "bf16", "f16"});
  add_timing_options(*sparse, arguments->timing);
  add_against_options(*sparse, arguments->against);
  sparse->callback([arguments, &run] { run = [arguments] { return bench_sparse(*arguments); }; });
}

}  // namespace convscope
