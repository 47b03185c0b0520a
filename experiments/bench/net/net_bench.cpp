// SPDX-License-Identifier: Apache-2.0
// net_bench.cpp: times a whole network on random images, or on points of a data set, in a steady
// state: the forward pass of inference, or a training step of forward, loss, backward and update.
#include "experiments/bench/net/net_bench.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>

#include "datasets/loader.h"
#include "experiments/bench/net/net_bench_recorded.h"
#include "experiments/bench/process_memory.h"
#include "experiments/config/build.h"
#include "experiments/run_folder/layer_table.h"
#include "experiments/trainer/compression/kept_weights.h"
#include "experiments/trainer/train_step.h"
#include "framework/memory/memory.h"
#include "framework/parallel.h"
#include "framework/random.h"
#include "layers/conv2d/conv2d.h"
#include "layers/dispatch/operator_use.h"
#include "layers/plan/step_plan.h"
#include "layers/training_rule.h"

namespace convscope {
namespace {

using Clock = std::chrono::steady_clock;

// This learning rate hardly changes the weights, so every step does the same work on similar
// numbers.
constexpr double kLearningRate = 1e-5;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// Returns the seconds of the selected clock, since some fixed moment.
double now(const NetBenchOptions& options) {
  timespec time{};
  clock_gettime(options.cpu_clock ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

Tensor random_tensor(const Shape& shape, std::uint64_t seed, Device device) {
  Tensor x = Tensor::empty(shape);
  Generator random(seed, 11);
  for (std::int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = random.normal();
  return x.to(device);
}

// Returns the first `size` samples, repeated when there are fewer.
Batch batch_of(const Dataset& samples, std::int64_t size) {
  if (samples.size() == 0) {
    fail(ErrorKind::kData, "bench net",
         cat("expected at least one sample in the training split of ", samples.name, ", got none"));
  }
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(size));
  for (std::int64_t i = 0; i < size; ++i) {
    numbers[static_cast<std::size_t>(i)] = i % samples.size();
  }
  Loader loader(subset(samples, numbers),
                {.batch_size = size, .shuffle = false, .prefetch = false});
  Batch batch;
  loader.start_epoch(0);
  loader.next(batch);
  return {.x = batch.x.clone(), .labels = batch.labels.clone()};  // batch dies with the loader
}

// Repeats `run`, which returns its time in seconds, until there are enough samples.
std::vector<double> sampled(const NetBenchOptions& options, const std::function<double()>& run) {
  std::vector<double> seconds;
  double total = 0;
  while (static_cast<int>(seconds.size()) < options.least_samples ||
         (total < options.min_seconds && static_cast<int>(seconds.size()) < options.most_samples)) {
    seconds.push_back(run());
    total += seconds.back();
  }
  return seconds;
}

double median_ms(std::vector<double> seconds) { return summary_of(std::move(seconds)).median_ms; }

void time_inference(const ExperimentConfig& config, Module& model, const Tensor& x,
                    const NetBenchOptions& options, NetBenchRow& row) {
  const NoGrad no_grad;
  model.eval();
  const Device device = config.device;
  std::string why = "the config says so";
  const std::unique_ptr<StepPlan> plan =
      config.train.plan ? StepPlan::make(model, x.shape(), PlanMode::inference, &why) : nullptr;
  if (plan) plan->prepare();  // the weights do not change
  row.execution = plan ? "planned" : cat("dynamic: ", why);
  if (plan && planned_kernels(*plan).any("int8")) row.arithmetic = "int8";
  const DeviceBackend& backend = backend_of(device);
  const auto forward = [&] {
    const double start = now(options);
    if (plan) {
      plan->infer(x);
    } else {
      model.forward(Variable(x));
    }
    backend.synchronize(device.index);
    return now(options) - start;
  };
  for (int i = 0; i < options.warm_up; ++i) forward();
  reset_peak(device);
  const std::int64_t asked = memory_stats(device).system_allocations;
  if (plan && backend.begin_recording != nullptr) {
    row.execution = "recorded";
    row.time = summary_of(recorded_inference_seconds(*plan, x, options));
  } else {
    row.time = summary_of(sampled(options, forward));
  }
  const MemoryStats after = memory_stats(device);
  row.peak_bytes = after.peak_bytes;
  row.workspace_peak_bytes = plan ? plan->memory().workspace_bytes : after.workspace_peak_bytes;
  row.resident_bytes = after.live_bytes;
  row.system_allocations = after.system_allocations - asked;
}

void time_training(const ExperimentConfig& config, Module& model, const Batch& batch, int classes,
                   const NetBenchOptions& options, NetBenchRow& row) {
  std::string why = "the config says so";
  if (options.samples != nullptr) {
    why = "its batch holds points";
  } else if (config.device.type != DeviceType::cpu && config.train.plan) {
    why = time_recorded_training(config, model, classes, options, row);
    if (why.empty()) return;
  }
  model.train();
  const std::unique_ptr<Optimizer> optimizer = build_optimizer(config, model);
  bind_pruner(options.pruner, *optimizer);
  TrainStep train_step(model, *optimizer, config.optim.clip_grad_norm, config.device,
                       /*base_bytes=*/0, config.train.plan, Loss(config.train.loss));
  std::vector<double> forward, backward, update;
  std::int64_t step = 0;
  const auto run = [&] {
    model.set_step(step++);
    const double start = now(options);
    const StepResult result = train_step.run(batch, kLearningRate);
    if (options.pruner != nullptr) options.pruner->rest();
    const double all = now(options) - start;
    if (!std::isfinite(result.loss)) {
      fail(ErrorKind::kRun, "bench net",
           cat("expected a finite loss on ",
               options.samples == nullptr ? "normal random images" : "the samples",
               " because only then the whole step is done, got ", result.loss, " after ", step,
               " steps"));
    }
    forward.push_back(result.forward_s);
    backward.push_back(result.backward_s);
    update.push_back(result.update_s);
    const MemoryStats now = memory_stats(config.device);
    row.peak_bytes = std::max({row.peak_bytes, result.backward_peak_bytes, now.peak_bytes});
    row.workspace_peak_bytes = std::max(row.workspace_peak_bytes, result.workspace_peak_bytes);
    row.resident_bytes = now.live_bytes;
    return all;
  };
  for (int i = 0; i < options.warm_up; ++i) run();
  forward.clear();
  backward.clear();
  update.clear();
  row.peak_bytes = row.workspace_peak_bytes = 0;
  const std::int64_t asked = memory_stats(config.device).system_allocations;
  row.time = summary_of(sampled(options, run));
  row.system_allocations = memory_stats(config.device).system_allocations - asked;
  row.execution =
      train_step.plan() != nullptr ? "planned" : cat("dynamic: ", train_step.why_dynamic());
  if (config.device.type != DeviceType::cpu) row.execution += cat("; not recorded: ", why);
  row.parts = {median_ms(forward), median_ms(backward), median_ms(update)};
}

// Returns the kernels of a layer for forward, dx and dw, as "direct/-/fft"; "" if there are none.
std::string names_of(const StepKernels& kernels, const std::string& layer, NetMode mode) {
  if (kernels.find(layer, Direction::forward) == nullptr) return "";
  std::vector<std::string> words;
  for (const Direction direction : kDirections) {
    words.push_back(kernels.name_of(layer, direction));
    if (mode == NetMode::inference) break;
  }
  return join(words, "/");
}

}  // namespace

Batch random_batch(const Module& model, const Shape& image, std::int64_t size, int classes,
                   std::uint64_t seed) {
  const Shape x = batch_shape(size, image), y = model.output_shape(x);
  Batch batch{
      .x = random_tensor(x, seed, Device{}),
      .labels = Tensor::zeros(y.rank() == 4 ? Shape{size, y[2], y[3]} : Shape{size}, DType::i32)};
  Generator random(seed, 12);
  for (std::int64_t i = 0; i < batch.labels.numel(); ++i) {
    batch.labels.data<std::int32_t>()[i] =
        static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(classes)));
  }
  return batch;
}

void settle_quantizers(const ExperimentConfig& config, Module& model, const Tensor& x) {
  if (!config.quant) return;
  count_kept(model);
  for (const QuantizedTensor& tensor : quantized_tensors(model)) tensor.quantizer->begin();
  const NoGrad no_grad;
  model.train();
  for (std::int64_t i = 0; i < config.quant->calibration_batches; ++i) model.forward(Variable(x));
}

const char* name_of(NetMode mode) { return mode == NetMode::inference ? "inference" : "train"; }

NetFlops net_flops(Module& model, const Shape& input) {
  NetFlops out;
  bool first = true;
  model.walk({input}, [&](Module& layer, const Shapes& inputs) {
    const double flops = forward_flops(layer, inputs[0]);
    if (flops == 0) return;
    out.forward += flops;
    out.step += flops * (first ? 2 : 3);
    first = false;
  });
  return out;
}

NetBenchRow bench_net(const ExperimentConfig& config, Module& model, const Shape& image,
                      int classes, NetMode mode, std::int64_t batch,
                      const NetBenchOptions& options) {
  if (mode == NetMode::train) {
    require_trainable(model, batch_shape(batch, image), cat("try another batch size than ", batch));
  }
  const Device device = config.device;
  release_cached(device);
  reset_process_peak();
  NetBenchRow row;
  row.net = config.name;
  row.mode = mode;
  row.batch = batch;
  row.image = image;
  row.threads = num_threads();
  row.parameters = model.parameter_count();
  if (config.quant) {
    row.arithmetic = "fake-quant f32";  // time_inference() detects integer arithmetic
  }
  const Batch data = options.samples == nullptr
                         ? random_batch(model, image, batch, classes, options.seed)
                         : batch_of(*options.samples, batch);
  settle_quantizers(config, model, data.x.to(device));
  if (mode == NetMode::inference) {
    time_inference(config, model, data.x.to(device), options, row);
  } else {
    time_training(config, model, data, classes, options, row);
  }
  const NetFlops flops = net_flops(model, data.x.shape());  // uses the sites of the last run
  row.flops = mode == NetMode::inference ? flops.forward : flops.step;
  const double seconds = row.time.median_ms * 1e-3;
  row.images_per_second = static_cast<double>(batch) / seconds;
  row.gflops_effective = row.flops / seconds * 1e-9;
  row.process_peak_bytes = process_peak_bytes();
  return row;
}

void check_layers_alone(Module& model) {
  for (const NamedModule& part : model.modules()) {
    const std::string kind = part.module->kind();
    if (kind != "sparse_points" && kind != "to_sparse") continue;
    fail(ErrorKind::kUnavailable, "bench net",
         cat("expected layers on images because each is timed alone on random numbers, got '",
             part.name, "' (", kind,
             "), after which layers take rows of the sites of one batch; leave out --layers: "
             "`convscope bench sparse_conv` times one of them, and layers.csv of a run holds the "
             "time of each"));
  }
}

std::vector<NetLayerRow> bench_layers(Module& model, const Shape& input, NetMode mode,
                                      Device device, const NetBenchOptions& options,
                                      const StepKernels& step) {
  check_layers_alone(model);
  std::map<const Module*, std::string> names;
  for (const NamedModule& part : model.modules()) names.emplace(part.module, part.name);
  const DeviceBackend& backend = backend_of(device);
  const bool train = mode == NetMode::train;
  model.train(train);
  const StepKernels alone = dynamic_kernels(
      model, input, device, train ? PlanMode::training : PlanMode::inference, "each runs alone");
  NetBenchOptions each = options;
  std::vector<NetLayerRow> rows;
  model.walk({input}, [&](Module& layer, const Shapes& inputs) {
    if (layer.has_lists()) return;  // it cannot run alone on one tensor
    const Shape& shape = inputs[0];
    NetLayerRow row;
    row.layer = names.at(&layer);
    row.kind = layer.kind();
    row.input = shape;
    row.output = layer.output_shape(shape);
    row.flops = forward_flops(layer, shape);
    row.bytes_forward = 4.0 * static_cast<double>(shape.numel() + row.output.numel());
    row.algorithms = names_of(alone, row.layer, mode);
    row.step_kernels = names_of(step, row.layer, mode);
    row.step = step.execution_of(row.layer);
    const Variable x(random_tensor(shape, options.seed, device), train && !rows.empty());
    const Tensor dy = random_tensor(row.output, options.seed + 1, device);
    std::vector<double> backward;
    const auto run = [&] {
      layer.zero_grad();
      Variable from = x;
      from.zero_grad();
      const Clock::time_point start = Clock::now();
      Variable y = layer.forward(x);
      backend.synchronize(device.index);
      const Clock::time_point middle = Clock::now();
      if (y.requires_grad() && !y.is_leaf()) {
        y.backward(dy);
        backend.synchronize(device.index);
      }
      backward.push_back(seconds_between(middle, Clock::now()));
      return seconds_between(start, middle);
    };
    const auto measure = [&] {
      for (int i = 0; i < options.warm_up; ++i) run();
      backward.clear();
      row.forward_ms = median_ms(sampled(each, run));
      if (train) row.backward_ms = median_ms(backward);
    };
    each.min_seconds = options.min_seconds / 20;
    if (train) {
      measure();
    } else {
      const NoGrad no_grad;
      measure();
    }
    rows.push_back(row);
  });
  return rows;
}

std::vector<NetOpRow> bench_operations(Module& model, const Shape& input, int classes, NetMode mode,
                                       const NetBenchOptions& options, const Loss& loss) {
  const bool train = mode == NetMode::train;
  model.train(train);
  const std::unique_ptr<StepPlan> plan =
      StepPlan::make(model, input, train ? PlanMode::training : PlanMode::inference, nullptr, {},
                     /*to_show=*/false, loss);
  if (!plan) return {};
  plan->prepare();
  const Batch batch =
      random_batch(model, {input[1], input[2], input[3]}, input[0], classes, options.seed);
  const Tensor x = batch.x.to(plan->device());
  std::vector<NetOpRow> rows;
  std::vector<std::vector<double>> forward, backward;
  (void)sampled(options, [&] {
    const Clock::time_point start = Clock::now();
    const auto times = plan->time_ops(x, batch.labels);
    forward.resize(times.size());
    backward.resize(times.size());
    rows.resize(times.size());
    for (std::size_t i = 0; i < times.size(); ++i) {
      rows[i].layer = times[i].layer;
      rows[i].text = times[i].text;
      forward[i].push_back(times[i].forward_s);
      backward[i].push_back(times[i].backward_s);
    }
    return seconds_between(start, Clock::now());
  });
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].forward_ms = median_ms(forward[i]);
    rows[i].backward_ms = median_ms(backward[i]);
  }
  return rows;
}

}  // namespace convscope
