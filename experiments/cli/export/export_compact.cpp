// SPDX-License-Identifier: Apache-2.0
// export_compact.cpp: `convscope export RUN --compact OUT`: the smaller dense network of a pruned
// run, as a checkpoint with its own config.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "experiments/bench/statistics.h"
#include "experiments/cli/command.h"
#include "experiments/cli/export/export_forms.h"
#include "experiments/config/build.h"
#include "experiments/config/compact_config.h"
#include "experiments/run_folder/run_folder.h"
#include "experiments/run_folder/run_summary.h"
#include "experiments/trainer/checkpoint.h"
#include "framework/parallel.h"
#include "layers/plan/step_plan.h"
#include "sparsity/compact.h"
#include "sparsity/sparsity_report.h"

namespace convscope {
namespace {

constexpr double kTolerance = 1e-5;  // relative to the largest output, or to 1

// Turns the rounding of activations off (`on` is true) or on again. The outputs of the pruned and
// of the smaller network are compared without this rounding. The two networks add in different
// orders, which may move a value across a rounding boundary and change the quantised value by one.
// Weights stay masked and rounded; the step sizes of the activations are copied.
void bypass_activations(Module& network, bool on) {
  for (const QuantizedTensor& tensor : quantized_tensors(network)) {
    if (!tensor.is_weight) tensor.quantizer->bypass(on);
  }
}

bool is_quantised(Module& network) {
  for (const QuantizedTensor& tensor : quantized_tensors(network)) {
    if (tensor.quantizer->is_active()) return true;
  }
  return false;
}

constexpr std::size_t kNetworks = 2;
constexpr int kWarmup = 5;

// Calls run(n, is_warm) for both networks in turns, so that a busy machine disturbs both alike.
template <class Run>
void in_turns(int rounds, double limit_seconds, int warmup, const Run& run) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < rounds; ++i) {
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    if (i > 2 * warmup && seconds > limit_seconds) return;
    for (std::size_t n = 0; n < kNetworks; ++n) run(n, i >= warmup);
  }
}

class Stopwatch {
 public:
  explicit Stopwatch(Device device) : device_(device) {}
  void start() { start_ = now(); }
  double ms() const { return std::chrono::duration<double, std::milli>(now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point now() const {
    backend_of(device_).synchronize(device_.index);
    return std::chrono::steady_clock::now();
  }
  Device device_;
  std::chrono::steady_clock::time_point start_;
};

// Median milliseconds of both networks.
struct Times {
  std::array<double, kNetworks> forward, both;
};
Times measure(Module& a, Module& b, const Shape& batch, Device device) {
  const Variable x(random_images(batch, 9).to(device));
  const std::array<Module*, kNetworks> networks = {&a, &b};
  std::array<std::vector<double>, kNetworks> forward, both;
  in_turns(200, 4, kWarmup, [&](std::size_t n, bool is_warm) {
    networks[n]->train();
    networks[n]->zero_grad();
    Stopwatch watch(device);
    watch.start();
    const Variable y = networks[n]->forward(x);
    const double forward_ms = watch.ms();
    y.backward(y.value().clone());
    const double both_ms = watch.ms();
    if (!is_warm) return;
    forward[n].push_back(forward_ms);
    both[n].push_back(both_ms);
  });
  return {{middle_value(forward[0]), middle_value(forward[1])},
          {middle_value(both[0]), middle_value(both[1])}};
}

// Returns the median milliseconds of compiled inference of both networks, timed in turns. Returns 0
// if one of the networks cannot be compiled.
std::array<double, kNetworks> inference_ms(Module& a, Module& b, const Shape& batch,
                                           Device device) {
  const NoGrad no_grad;
  const Tensor x = random_images(batch, 9).to(device);
  std::array<std::unique_ptr<StepPlan>, kNetworks> plans;
  std::array<std::vector<double>, kNetworks> times;
  for (std::size_t n = 0; n < kNetworks; ++n) {
    Module& network = n == 0 ? a : b;
    network.eval();
    plans[n] = StepPlan::make(network, batch, PlanMode::inference, nullptr);
    if (!plans[n]) return {};
    plans[n]->prepare();
  }
  in_turns(50, 2, 3, [&](std::size_t n, bool is_warm) {
    Stopwatch watch(device);
    watch.start();
    plans[n]->infer(x);
    const double ms = watch.ms();
    if (is_warm) times[n].push_back(ms);
  });
  return {middle_value(times[0]), middle_value(times[1])};
}

// Returns "c1 6 of 6 (4 alive), c2 8 of 16", as in the table of the run. An output that is kept but
// not alive is constant; it is kept because later layers need the constant.
std::string widths_text(const SparsityReport& report, const CompactPlan& plan) {
  std::string text;
  bool constants = false;
  for (std::size_t l = 0; l < report.layers.size(); ++l) {
    const LayerSparsity& layer = report.layers[l];
    const auto kept = static_cast<std::int64_t>(plan.kept[l].size());
    text += fmt::format("{}{} {} of {}", l == 0 ? "kept        " : ", ", layer.name, kept,
                        layer.outputs);
    if (kept == layer.alive) continue;
    constants = true;
    text += fmt::format(" ({} alive)", layer.alive);
  }
  text += "\n";
  if (constants) {
    text +=
        "            kept but not alive: no input reaches these outputs, but later layers "
        "need their constants\n";
  }
  return text;
}

}  // namespace

void export_compact(const ExportArguments& arguments) {
  const std::string run = resolve_run(arguments.run);
  const ExperimentConfig config = load_config(run + "/config.yaml", global_overrides());
  set_num_threads(static_cast<int>(config.threads));
  const SampleInfo sample = sample_info(config);
  const std::shared_ptr<Module> model = build_model(config, sample.shape, sample.classes);
  const std::unique_ptr<Pruner> pruner = build_pruner(config, *model, nullptr, sample.shape, 0);
  if (pruner == nullptr) {
    fail(ErrorKind::kConfig, "export",
         cat("expected a run with a block 'sparsity', because --compact removes pruned channels, "
             "got ",
             run, " without"));
  }
  const std::string checkpoint = cat(run, "/ckpt/", arguments.weights, ".safetensors");
  if (parse_config_text(checkpoint_config(checkpoint), checkpoint).sparsity.values().empty()) {
    fail(ErrorKind::kConfig, "export",
         cat("expected a network with masks, because --compact removes pruned channels, got a "
             "network whose filters were removed during training; it is compact already: ",
             checkpoint));
  }
  const TrainingState state = load_checkpoint(checkpoint, *model, nullptr);

  const PrunableNetwork& network = pruner->network();
  const std::vector<Tensor> masks = pruner->masks();
  const CompactPlan plan = compact_plan(network, masks);
  const std::string yaml = to_yaml(compact_config(config, config.name + "_compact", network, plan));
  const ExperimentConfig smaller = parse_config_text(yaml, "compact config");
  const std::shared_ptr<Module> compact = build_model(smaller, sample.shape, sample.classes);
  copy_compact(*model, network, masks, plan, *compact);

  const Shape batch = batch_shape(config.data.batch_size, sample.shape);
  const bool quantised = is_quantised(*model);
  const OutputDifference whole = difference(*model, *compact, batch, config.device);
  for (Module* one : {model.get(), compact.get()}) bypass_activations(*one, quantised);
  const OutputDifference gap =
      quantised ? difference(*model, *compact, batch, config.device) : whole;
  for (Module* one : {model.get(), compact.get()}) bypass_activations(*one, false);
  if (!(gap.largest <= kTolerance * std::max(1.0, gap.largest_output))) {
    fail(ErrorKind::kRun, "export",
         cat("expected the compact network to give the same outputs within ", kTolerance,
             " of the largest, got a difference of ", gap.largest, " at outputs up to ",
             gap.largest_output));
  }
  const bool codes = quantised && config.quant->execute != QuantExecute::fake;
  save_checkpoint(arguments.compact, *compact, nullptr, state, yaml,
                  execution_text(codes       ? Arithmetic::int8
                                 : quantised ? Arithmetic::fake_quant
                                             : Arithmetic::f32,
                                 Form::compact));

  const Times times = measure(*model, *compact, batch, config.device);
  std::string text = widths_text(pruner->report(state.step), plan);
  if (quantised) {
    text += codes ? "execution   both: int8 in inference, otherwise fake-quant f32\n"
                  : "execution   both: fake-quant f32\n";
  }
  text += fmt::format("{:<34} {:>14} {:>14} {:>8}\n", "", "masked dense", "compact dense", "ratio");
  const auto line = [&](const char* name, double a, double b, int digits) {
    text += fmt::format("{:<34} {:>14.{}f} {:>14.{}f} {:>8.2f}\n", name, a, digits, b, digits,
                        b > 0 ? a / b : 0);
  };
  line("parameters", static_cast<double>(model->parameter_count()),
       static_cast<double>(compact->parameter_count()), 0);
  const std::string batch_text = fmt::format("batch {}", config.data.batch_size);
  const std::array<double, 2> inference = inference_ms(*model, *compact, batch, config.device);
  if (inference[0] > 0) {
    line(fmt::format("inference, {}, ms", batch_text).c_str(), inference[0], inference[1], 4);
  }
  line(fmt::format("forward, {}, ms", batch_text).c_str(), times.forward[0], times.forward[1], 4);
  line(fmt::format("forward + backward, {}, ms", batch_text).c_str(), times.both[0], times.both[1],
       4);
  const std::int64_t images = kExportChecks * config.data.batch_size;
  text += fmt::format("outputs differ by at most {:.3g} (outputs up to {:.3g}, {} random images)\n",
                      whole.largest, whole.largest_output, images);
  if (quantised) {
    text += fmt::format("with unrounded activations by at most {:.3g} (outputs up to {:.3g})\n",
                        gap.largest, gap.largest_output);
  }
  text += fmt::format("written     {}\n", arguments.compact);
  print_screen(text);
}

}  // namespace convscope
