// SPDX-License-Identifier: Apache-2.0
// bench_sparse_net.cpp: `convscope bench sparse_net`: a network of submanifold layers by each
// algorithm, forward and backward.
#include <charconv>
#include <iostream>
#include <memory>
#include <optional>

#include "experiments/bench/sparse/sparse_net_report.h"
#include "experiments/cli/bench/bench_against.h"
#include "experiments/cli/bench/bench_legend.h"
#include "experiments/cli/bench/bench_remarks.h"
#include "experiments/cli/bench/bench_tasks.h"
#include "experiments/cli/command.h"
#include "experiments/cli/measure_once.h"
#include "experiments/cli/nested_commands.h"
#include "experiments/run_folder/user_words.h"
#include "framework/parallel.h"

namespace convscope {
namespace {

constexpr const char* kCommand = "bench sparse_net";
// The default rows: algorithms that other libraries have too, and those of Convscope. An algorithm
// that the device lacks is reported.
constexpr const char* kAlgorithms = "native,implicit_gemm,split_mask,halo,auto";

struct SparseNetArguments {
  std::int64_t voxels = 120000;
  std::string cloud = "shell", channels = "16,32,32,64,64,64,64";
  std::string precision = "f32";
  std::string algorithm = kAlgorithms;
  std::string baseline;
  TimingArguments timing;
  AgainstOptions against;
};

std::vector<std::int64_t> channels_of(const std::string& text) {
  std::vector<std::int64_t> out;
  for (const std::string& word : split_commas(text)) {
    std::int64_t number = 0;
    const char* const end = word.data() + word.size();
    const auto [at, error] = std::from_chars(word.data(), end, number);
    if (error != std::errc() || at != end || number < 1 || number > 4096) {
      fail_usage(kCommand,
                 cat("expected --channels from 1 to 4096 joined by commas, got '", text, "'"));
    }
    out.push_back(number);
  }
  if (out.size() < 2) {
    fail_usage(kCommand,
               cat("expected at least two --channels, before and after a layer, got ", text));
  }
  return out;
}

std::vector<ComputePrecision> precisions_of(const std::string& text) {
  std::vector<ComputePrecision> out;
  std::vector<std::string> names;
  for (const ComputePrecision one : kComputePrecisions) names.emplace_back(name_of(one));
  for (const std::string& word : split_commas(text)) {
    const auto at = std::ranges::find(names, word);
    if (at == names.end()) {
      fail_usage(kCommand, cat("expected --precision to be some of ", join(names), ", got '", word,
                               "'", did_you_mean(word, names)));
    }
    const ComputePrecision one = kComputePrecisions[at - names.begin()];
    if (std::ranges::count(out, one) == 0) out.push_back(one);
  }
  return out;
}

// Returns the algorithms that `text` names. A name must be in kAlgorithms or be an algorithm of the
// device.
std::vector<std::string> algorithms_of(const std::string& text, Device device) {
  std::vector<std::string> known = split_commas(kAlgorithms);
  for (const std::string& name : sparse_conv_algorithms(device.type).names()) {
    if (std::ranges::count(known, name) == 0) known.push_back(name);
  }
  std::vector<std::string> out;
  for (const std::string& word : split_commas(text)) {
    if (std::ranges::count(known, word) == 0) {
      fail(ErrorKind::kUnavailable, kCommand,
           cat("expected --algorithm to be some of ", join(known), ", got '", word, "'",
               did_you_mean(word, known)));
    }
    if (std::ranges::count(out, word) == 0) out.push_back(word);
  }
  return out;
}

DrawnCloud cloud_of(const SparseNetArguments& arguments) {
  DrawnCloud out;
  for (const CloudShape shape : kCloudShapes) {
    if (name_of(shape) == arguments.cloud) out.shape = shape;
  }
  out.sites = arguments.voxels;
  out.check();
  return out;
}

BenchWords case_of(const SparseNetArguments& arguments) {
  BenchWords out = {
      "bench",       "sparse_net",        "--voxels",    std::to_string(arguments.voxels),
      "--cloud",     arguments.cloud,     "--channels",  arguments.channels,
      "--precision", arguments.precision, "--algorithm", arguments.algorithm};
  const BenchWords more = timing_words(arguments.timing);
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

int bench_net(const SparseNetArguments& arguments) {
  check_timing(kCommand, arguments.timing);
  check_against(kCommand, arguments.against);
  if (arguments.against.asked() && !arguments.baseline.empty()) {
    fail_usage(kCommand,
               "expected --against without --baseline because it compares two builds, got both");
  }
  if (arguments.timing.weights != "once") {
    fail_usage(kCommand,
               "expected --weights once because a training step prepares the weights in each call");
  }
  SparseNetOptions options{.cloud = cloud_of(arguments),
                           .channels = channels_of(arguments.channels),
                           .precisions = precisions_of(arguments.precision),
                           .algorithms = {},
                           .timing = bench_settings(arguments.timing)};
  options.algorithms = algorithms_of(arguments.algorithm, options.timing.device);
  std::optional<SparseNetBaseline> baseline;
  if (!arguments.baseline.empty()) {
    baseline = read_sparse_net_baseline(arguments.baseline, options.cloud.sites, options.channels);
  }
  if (!arguments.timing.csv.empty()) {
    fail_usage(kCommand, "expected --json because this table has no CSV form, got --csv");
  }
  if (arguments.against.asked()) {
    return bench_against(kCommand, arguments.against, arguments.timing, {case_of(arguments)},
                         /*only_auto=*/false);
  }
  BenchFile json(arguments.timing.json);
  measure_this_machine_once();
  warn_of_load(num_threads());
  BenchRemarks remarks(1);
  remarks.begin(cat("network on ", options.cloud.text()));
  remarks.say("drawing the cloud");
  const CloudProblem layer{.cloud = options.cloud,
                           .kernel = {.size = {options.cloud.rank() == 3 ? 3 : 1, 3, 3}}};
  const CloudMap on(layer, options.timing.cpu_clock, options.timing.device);
  const SparseNetBench bench =
      bench_sparse_net(options, on, [&](const std::string& what) { remarks.say(what); });
  remarks.clear();
  const SparseNetReport report{.options = &options,
                               .on = &on,
                               .bench = &bench,
                               .baseline = baseline ? &*baseline : nullptr,
                               .threads = num_threads()};
  for (const SparseNetRefusal& one : bench.refusals) {
    remark(cat("left out: ", name_of(one.precision), " ", one.algorithm, ": ", one.reason));
  }
  if (bench.rows.empty()) {
    fail(ErrorKind::kUnavailable, kCommand,
         "expected an algorithm that accepts the network, but each was left out");
  }
  print_screen(sparse_net_table(report) + sparse_net_legend(baseline.has_value()));
  if (json.wanted()) json.finish(sparse_net_json(report));
  if (std::ranges::any_of(bench.rows, [](const SparseNetRow& row) { return !row.wrong.empty(); })) {
    return exit_code(ErrorKind::kRun);
  }
  return 0;
}

}  // namespace

void declare_bench_sparse_net(CommandLine& bench, std::function<int()>& run) {
  auto arguments = std::make_shared<SparseNetArguments>();
  CommandLine* const net =
      bench.add_subcommand("sparse_net", "Time each algorithm on a stack of submanifold layers.");
  net->add_option("--voxels", arguments->voxels, "number of sites of the cloud")
      ->capture_default_str();
  net->add_option("--cloud", arguments->cloud,
                  "shape of the cloud: shell, room, lidar, random, full or ink")
      ->one_of({"shell", "room", "lidar", "random", "full", "ink"})
      ->capture_default_str();
  net->add_option("--channels", arguments->channels,
                  "channels before the first layer and after each layer, joined by commas")
      ->capture_default_str();
  net->add_option(
         "--precision", arguments->precision,
         "precisions, joined by commas: f32, tf32, bf16, f16 (tf32, bf16 and f16: cuda only)")
      ->capture_default_str();
  net->add_option(
         "--algorithm", arguments->algorithm,
         "algorithms, joined by commas; auto: the automatic choice for each layer and direction")
      ->capture_default_str();
  net->add_option("--baseline", arguments->baseline,
                  "times of another library on this network, a file of "
                  "experiments/baselines/sparse_conv_vs_spconv.py --net")
      ->type_name("FILE");
  net->add_former_name("--peer", "--baseline", arguments->baseline);
  add_timing_options(*net, arguments->timing);
  add_against_options(*net, arguments->against);
  net->callback([arguments, &run] { run = [arguments] { return bench_net(*arguments); }; });
}

}  // namespace convscope
