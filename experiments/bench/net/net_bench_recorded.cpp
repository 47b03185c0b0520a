// SPDX-License-Identifier: Apache-2.0
// net_bench_recorded.cpp: times a whole network on a device that can capture its kernels (CUDA: as
// a graph). Marks in the device's queue around several replayed runs give the time of one run
// without host delays.
#include "experiments/bench/net/net_bench_recorded.h"

#include <algorithm>
#include <cmath>

#include "experiments/config/build.h"
#include "experiments/trainer/recorded_steps.h"
#include "framework/memory/memory.h"
#include "framework/random.h"

namespace convscope {
namespace {

constexpr int kRuns = 20;  // inference runs per launch
constexpr double kLearningRate = 1e-5;
// The random data set has batches for two launches with kMaxSteps steps each. It has fewer batches
// if the images are large.
constexpr std::int64_t kBatches = 2 * RecordedSteps::kMaxSteps;
constexpr std::int64_t kMaxBytes = std::int64_t{512} << 20;

Dataset random_images(const Shape& image, std::int64_t batch, int classes, std::uint64_t seed) {
  const std::int64_t bytes = batch * image.numel();
  const std::int64_t count = batch * std::clamp<std::int64_t>(kMaxBytes / bytes, 2, kBatches);
  Dataset data;
  data.name = "random";
  data.classes = classes;
  data.images = Tensor::empty({count, image[0], image[1], image[2]}, DType::u8);
  data.labels = Tensor::empty({count}, DType::i32);
  Generator random(seed, 13);
  auto* const pixels = data.images.data<std::uint8_t>();
  for (std::int64_t i = 0; i < data.images.numel(); i += 4) {
    const std::uint32_t bits = random.next_bits();
    for (std::int64_t j = i; j < std::min(i + 4, data.images.numel()); ++j) {
      pixels[j] = static_cast<std::uint8_t>(bits >> 8 * (j - i));
    }
  }
  for (std::int64_t i = 0; i < count; ++i) {
    data.labels.data<std::int32_t>()[i] =
        static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(classes)));
  }
  data.mean.assign(static_cast<std::size_t>(image[0]), 0.5);
  data.std.assign(static_cast<std::size_t>(image[0]), 0.3);
  return data;
}

}  // namespace

std::vector<double> recorded_inference_seconds(StepPlan& plan, const Tensor& x,
                                               const NetBenchOptions& options) {
  const Device device = plan.device();
  const DeviceBackend& backend = backend_of(device);
  plan.infer(x);  // loads kernels and libraries
  backend.begin_recording(device.index);
  for (int i = 0; i < kRuns; ++i) plan.infer(x);
  void* const recording = backend.end_recording(device.index);
  void* const begin = backend.make_mark(device.index);
  void* const end = backend.make_mark(device.index);
  std::vector<double> seconds;
  double total = 0;
  for (int i = -options.warm_up; static_cast<int>(seconds.size()) < options.most_samples; ++i) {
    backend.set_mark(device.index, begin);
    backend.replay(device.index, recording);
    backend.set_mark(device.index, end);
    const double took = 1e-3 * backend.ms_between(device.index, begin, end);
    if (i < 0) continue;
    seconds.push_back(took / kRuns);
    total += took;
    const bool enough = static_cast<int>(seconds.size()) >= options.least_samples;
    if (enough && total >= options.min_seconds) break;
  }
  backend.free_mark(device.index, begin);
  backend.free_mark(device.index, end);
  backend.free_recording(device.index, recording);
  return seconds;
}

std::string time_recorded_training(const ExperimentConfig& config, Module& model, int classes,
                                   const NetBenchOptions& options, NetBenchRow& row) {
  if (model.output_shape(batch_shape(row.batch, row.image)).rank() == 4) {
    return "the random images of recorded steps have one class each, not one for each pixel";
  }
  model.train();
  const std::unique_ptr<Optimizer> optimizer = build_optimizer(config, model);
  const Loader loader(random_images(row.image, row.batch, classes, options.seed),
                      {.batch_size = row.batch, .seed = options.seed, .prefetch = false});
  bind_pruner(options.pruner, *optimizer);
  std::function<void()> rest;
  if (options.pruner != nullptr) rest = [pruner = options.pruner] { pruner->rest(); };
  std::string why;
  LossScale loss_scale;
  const auto steps = RecordedSteps::make(
      model, optimizer.get(), config.optim.clip_grad_norm, loader, config.device, &why, rest,
      nullptr, config.precision == ComputePrecision::f16 ? &loss_scale : nullptr,
      Loss(config.train.loss));
  if (!steps) return why;
  const auto rate = [](std::int64_t) { return kLearningRate; };
  const std::int64_t batches = loader.batches_per_epoch();
  const int most = static_cast<int>(std::min<std::int64_t>(batches, RecordedSteps::kMaxSteps));
  std::vector<double> seconds;
  double total = 0;
  std::int64_t asked = 0;
  const auto enough = [&] {
    const int count = static_cast<int>(seconds.size());
    return (count >= options.least_samples && total >= options.min_seconds) ||
           count >= options.most_samples;
  };
  for (std::int64_t epoch = 0; !enough(); ++epoch) {
    steps->start_epoch(epoch, 0, epoch * batches);
    if (epoch == 2) asked = memory_stats(config.device).system_allocations;
    while (true) {
      while (steps->queue(rate, most) > 0) {
      }
      if (steps->in_flight() == 0) break;
      const RecordedSteps::Launch launch = steps->collect();
      if (!std::isfinite(launch.outcomes[launch.steps - 1].loss)) {
        fail(
            ErrorKind::kRun, "bench net",
            cat("expected a finite loss on random images because only then the whole step is done, "
                "got ",
                launch.outcomes[launch.steps - 1].loss));
      }
      // The first epoch captures the graphs, and the second runs some of them for the first time.
      if (epoch < 2 || launch.steps < most / 2) continue;
      seconds.push_back(launch.seconds / launch.steps);
      total += launch.seconds;
    }
  }
  const MemoryStats after = memory_stats(config.device);
  row.time = summary_of(seconds);
  row.execution = cat("recorded, up to ", most, " steps for each launch");
  row.system_allocations = after.system_allocations - asked;
  row.peak_bytes = row.resident_bytes = after.live_bytes - steps->data_bytes();
  row.workspace_peak_bytes = steps->plan().memory().workspace_bytes;
  return "";
}

}  // namespace convscope
