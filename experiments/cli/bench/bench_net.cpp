// SPDX-License-Identifier: Apache-2.0
// bench_net.cpp: `convscope bench net`: inference and training steps of a whole network.
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include "datasets/dataset.h"
#include "experiments/bench/net/net_report.h"
#include "experiments/cli/bench/bench_against.h"
#include "experiments/cli/bench/bench_legend.h"
#include "experiments/cli/bench/bench_remarks.h"
#include "experiments/cli/command.h"
#include "experiments/cli/measure_once.h"
#include "experiments/cli/nested_commands.h"
#include "experiments/cli/words/config_words.h"
#include "experiments/config/build.h"
#include "experiments/run_folder/check_lines.h"
#include "experiments/run_folder/machine_load.h"
#include "experiments/run_folder/run_folder.h"
#include "experiments/trainer/checkpoint.h"
#include "framework/parallel.h"

namespace convscope {
namespace {

constexpr const char* kCommand = "bench net";

struct Arguments {
  std::string net;
  std::vector<std::string> overrides;
  std::string batch, mode = "inference,train", clock = "wall", image, json, csv, execute, device;
  int classes = 0;
  bool layers = false;
  AgainstOptions against;
  double min_time = 2;
  int rounds = 10;
};

std::vector<std::string> split(const std::string& text, char mark) {
  std::vector<std::string> out(1);
  for (const char c : text) {
    if (c == mark) {
      out.emplace_back();
    } else {
      out.back() += c;
    }
  }
  return out;
}

// Parses whole numbers from 1 to `most`, joined by `mark`.
std::vector<std::int64_t> numbers(const char* option, const std::string& text, char mark,
                                  std::int64_t most, const char* example) {
  std::vector<std::int64_t> out;
  for (const std::string& word : split(text, mark)) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size() || value < 1 || value > most) {
      fail_usage(kCommand, cat("expected ", option, " to be whole numbers from 1 to ", most,
                               " such as ", example, ", got '", text, "'"));
    }
    out.push_back(value);
  }
  return out;
}

std::vector<NetMode> modes_of(const std::string& text) {
  std::vector<NetMode> out;
  for (const std::string& word : split(text, ',')) {
    if (word != "inference" && word != "train") {
      fail_usage(kCommand, cat("expected --mode inference, train or both joined by a comma, got '",
                               text, "'"));
    }
    out.push_back(word == "train" ? NetMode::train : NetMode::inference);
  }
  return out;
}

// Returns the path if it is a checkpoint or model file, or the last checkpoint of a run folder; ""
// if `net` is neither.
std::string trained_file(const std::string& net) {
  if (net.ends_with(".safetensors") && std::filesystem::is_regular_file(net)) return net;
  if (!std::filesystem::is_directory(net)) return "";
  return resolve_run(net) + "/ckpt/last.safetensors";
}

// Loads the weights of a trained network, so that the network is timed with its own masks and step
// sizes. Loads nothing when KEY=VALUE words of the command have added or removed quantisers,
// because the checkpoint does not fit then.
void take_weights(const Arguments& arguments, const ExperimentConfig& config, Module& model) {
  const std::string file = trained_file(arguments.net);
  if (file.empty()) return;
  const bool had_quantizers = parse_config_text(checkpoint_config(file), file).quant.has_value();
  if (had_quantizers == config.quant.has_value()) load_checkpoint(file, model, nullptr);
}

// Returns the config of a config file, of a registered model, or of a trained network.
ExperimentConfig config_of(const Arguments& arguments) {
  std::vector<std::string> overrides = arguments.overrides;
  for (const std::string& text : global_overrides()) overrides.push_back(text);
  if (!arguments.execute.empty()) overrides.push_back("quant.execute=" + arguments.execute);
  if (!arguments.device.empty()) {
    const auto other = std::ranges::find_if(
        overrides, [](const std::string& text) { return text.starts_with("device="); });
    if (other != overrides.end() && *other != "device=" + arguments.device) {
      fail_usage(kCommand, cat("expected one device because a case runs on one, got --device ",
                               arguments.device, " and ", *other, "; leave one of them out"));
    }
    overrides.push_back("device=" + arguments.device);
  }
  if (const std::string file = trained_file(arguments.net); !file.empty()) {
    return parse_config_text(checkpoint_config(file), file, {}, overrides);
  }
  return config_or_network(kCommand, arguments.net, overrides);
}

// Returns the requested image size and classes, or else those of the data set or the named network.
SampleInfo sample_of(const Arguments& arguments, const ExperimentConfig& config) {
  SampleInfo out;
  if (is_network_name(arguments.net)) {
    out = sample_of_network(arguments.net);
  } else if (arguments.image.empty() || arguments.classes == 0) {
    out = sample_info(config);
  }
  if (!arguments.image.empty()) {
    const auto sizes = numbers("--image", arguments.image, 'x', 1 << 20, "3x224x224");
    if (sizes.size() != 3) {
      fail_usage(kCommand,
                 cat("expected --image CxHxW such as 3x224x224, got '", arguments.image, "'"));
    }
    out.shape = {sizes[0], sizes[1], sizes[2]};
  }
  if (arguments.classes > 0) out.classes = arguments.classes;
  return out;
}

// Returns the samples of a point data set for the batch; random numbers cannot be grid positions.
std::optional<Dataset> points_of(const Arguments& arguments, const ExperimentConfig& config) {
  const DatasetType& type = dataset_types().get(config.data.set);
  if (!type.point_grid || is_network_name(arguments.net)) return std::nullopt;
  if (!arguments.image.empty() || arguments.classes > 0) {
    fail_usage(kCommand, cat("expected neither --image nor --classes because the batch is samples "
                             "of ",
                             config.data.set, ", a set of points, got ",
                             arguments.image.empty() ? "--classes" : "--image", "; leave it out"));
  }
  return type.load(config.data.options).train;
}

// Returns one case per mode and batch.
std::vector<BenchWords> cases_of(const Arguments& arguments, const std::vector<NetMode>& modes,
                                 const std::vector<std::int64_t>& batches) {
  BenchWords common = {"bench", "net", arguments.net};
  common.insert(common.end(), arguments.overrides.begin(), arguments.overrides.end());
  const std::pair<const char*, std::string> options[] = {
      {"--device", arguments.device},
      {"--image", arguments.image},
      {"--classes", arguments.classes > 0 ? std::to_string(arguments.classes) : ""},
      {"--execute", arguments.execute},
      {"--clock", arguments.clock},
      {"--rounds", std::to_string(arguments.rounds)}};
  for (const auto& [name, value] : options) {
    if (!value.empty()) common.insert(common.end(), {name, value});
  }
  std::vector<BenchWords> out;
  for (const NetMode mode : modes) {
    for (const std::int64_t batch : batches) {
      out.push_back(common);
      out.back().insert(out.back().end(),
                        {"--mode", name_of(mode), "--batch", std::to_string(batch)});
    }
  }
  return out;
}

int bench(const Arguments& arguments) {
  if (!(arguments.min_time > 0 && arguments.min_time <= 3600)) {
    fail_usage(kCommand, cat("expected --min-time above 0 and at most 3600 seconds, got ",
                             arguments.min_time));
  }
  if (arguments.rounds < 1 || arguments.rounds > 1000000) {
    fail_usage(kCommand, cat("expected --rounds from 1 to 1000000, got ", arguments.rounds));
  }
  if (arguments.classes < 0 || arguments.classes > (1 << 20)) {
    fail_usage(kCommand, cat("expected --classes from 1 to 1048576, got ", arguments.classes));
  }
  if (arguments.clock != "wall" && arguments.clock != "cpu") {
    fail_usage(kCommand, cat("expected --clock wall or cpu, got '", arguments.clock, "'"));
  }
  const std::vector<NetMode> modes = modes_of(arguments.mode);
  const ExperimentConfig config = config_of(arguments);
  set_num_threads(static_cast<int>(config.threads));
  backend_of(config.device);
  if (arguments.clock == "cpu" && (num_threads() != 1 || config.device.type != DeviceType::cpu)) {
    fail_usage(kCommand,
               "expected --threads 1 and device cpu because --clock cpu counts one thread's time");
  }
  const std::vector<std::int64_t> batches =
      arguments.batch.empty() ? std::vector<std::int64_t>{config.data.batch_size}
                              : numbers("--batch", arguments.batch, ',', 1 << 24, "1,8");
  check_against(kCommand, arguments.against);
  if (arguments.against.asked()) {
    if (arguments.layers) {
      fail_usage(kCommand,
                 "expected --against without --layers because it compares whole steps, "
                 "got both");
    }
    measure_this_machine_once();
    const TimingArguments timing{
        .json = arguments.json, .csv = arguments.csv, .min_time = arguments.min_time};
    return bench_against(kCommand, arguments.against, timing, cases_of(arguments, modes, batches),
                         /*only_auto=*/false);
  }
  const std::optional<Dataset> points = points_of(arguments, config);
  const SampleInfo sample =
      points ? SampleInfo{points->sample_shape(), points->classes} : sample_of(arguments, config);
  NetBenchReport report{.net = config.name,
                        .device = config.device.str(),
                        .threads = num_threads(),
                        .options = {.min_seconds = arguments.min_time,
                                    .least_samples = arguments.rounds,
                                    .cpu_clock = arguments.clock == "cpu",
                                    .seed = static_cast<std::uint64_t>(config.seed),
                                    .samples = points ? &*points : nullptr},
                        .rows = {},
                        .layers = {},
                        .operations = {}};
  BenchFiles files(arguments.json, arguments.csv);
  measure_this_machine_once();
  const std::shared_ptr<Module> model = build_model(config, sample.shape, sample.classes);
  const std::unique_ptr<Pruner> pruner = build_pruner(config, *model, nullptr, sample.shape, 0);
  if (pruner) pruner->prune_now();
  take_weights(arguments, config, *model);
  report.options.pruner = pruner.get();
  if (arguments.layers) check_layers_alone(*model);
  std::cout << cat(config.name, ": ", model->parameter_count(), " parameters, ",
                   points ? "points of " + config.data.set + " " : "images ", sample.shape, ", ",
                   sample.classes, " classes, ", report.device, ", ", report.threads, " threads\n");
  warn_of_load(report.threads);
  const auto json = [&] { return net_json(report); };
  const auto csv = [&] { return net_csv(report); };
  for (const NetMode mode : modes) {
    for (const std::int64_t batch : batches) {
      if (global_options().verbosity >= 0) {
        std::cerr << name_of(mode) << ", batch " << batch << " ...\n";
      }
      const LoadSpan load;
      report.rows.push_back(
          bench_net(config, *model, sample.shape, sample.classes, mode, batch, report.options));
      report.rows.back().cores_of_others = load.others();
      if (arguments.layers) {
        const Shape input = batch_shape(batch, sample.shape);
        const PlanMode plan_mode =
            mode == NetMode::train ? PlanMode::training : PlanMode::inference;
        const Loss loss(config.train.loss);
        StepKernels step =
            kernels_of_step(*model, input, config.device, plan_mode, config.train.plan, loss);
        if (report.rows.back().execution.starts_with("recorded")) step.now_recorded();
        report.layers.push_back(
            bench_layers(*model, input, mode, config.device, report.options, step));
        report.operations.push_back({});
        if (config.train.plan) {
          report.operations.back() =
              bench_operations(*model, input, sample.classes, mode, report.options, loss);
        }
        std::cout << net_layer_table(report.rows.back(), report.layers.back()) << "\n"
                  << net_operation_table(report.rows.back(), report.operations.back()) << "\n"
                  << std::flush;
      }
      if (report.rows.size() < modes.size() * batches.size()) files.keep(json, csv);
    }
  }
  report.complete = true;
  files.finish(json, csv);
  print_screen(net_table(report.rows) + net_legend());
  for (const NetBenchRow& row : report.rows) {
    if (row.execution == "planned" || row.execution == "recorded") continue;
    std::cout << name_of(row.mode) << ", batch " << row.batch << ": " << row.execution << "\n";
  }
  for (const std::string& line : check_lines()) std::cerr << line << "\n";
  std::vector<std::optional<double>> loads;
  for (const NetBenchRow& row : report.rows) loads.push_back(row.cores_of_others);
  if (config.device.type == DeviceType::cpu) remark(disturbed_cases(loads, report.threads));
  return 0;
}

}  // namespace

void declare_bench_net(CommandLine& app, std::function<int()>& run) {
  auto arguments = std::make_shared<Arguments>();
  CommandLine* const net = app.add_subcommand(
      "net", "Time a whole network on random images or on points of its data set.");
  net->add_option("CONFIG|MODEL|RUN", arguments->net,
                  "config: file or name of a shipped config; or the name of a model; or a trained "
                  "network: run folder or .safetensors checkpoint")
      ->required();
  net->add_option("KEY=VALUE", arguments->overrides,
                  "values that replace those of the config (optim.lr=0.1)");
  net->add_option("--device", arguments->device,
                  "device: cpu, cuda or cuda:<index> (default: the config's)");
  net->add_option("--batch", arguments->batch,
                  "batch sizes, joined by commas (default: the config's)");
  net->add_option("--mode", arguments->mode,
                  "inference (forward only), train (a whole step), or both joined by a comma")
      ->capture_default_str();
  net->add_option("--image", arguments->image, "image size CxHxW (default: the data set's)");
  net->add_option("--classes", arguments->classes, "number of outputs (default: the data set's)");
  net->add_flag("--layers", arguments->layers,
                "times of each layer, and of the operations of the compiled step");
  net->add_option("--execute", arguments->execute,
                  "execution of a quantised network: fake (rounded values, f32 products), int8 "
                  "(integer products where they are faster) or int8_always; a network without "
                  "quantisers gets 8-bit quantisers")
      ->one_of({"fake", "int8", "int8_always"});
  net->add_option(
         "--clock", arguments->clock,
         "wall: elapsed time; cpu: CPU time of one thread, for --threads 1 on a busy machine")
      ->capture_default_str();
  net->add_option("--min-time", arguments->min_time, "seconds of timing for each case")
      ->capture_default_str();
  net->add_option("--rounds", arguments->rounds, "minimum number of timings of each case")
      ->capture_default_str();
  net->add_option("--json", arguments->json, kJsonHelp)->output_file();
  net->add_option("--csv", arguments->csv, "file for the rows as CSV; -: stdout")->output_file();
  add_against_options(*net, arguments->against);
  net->callback([arguments, &run] { run = [arguments] { return bench(*arguments); }; });
}

}  // namespace convscope
