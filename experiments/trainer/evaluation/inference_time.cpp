// SPDX-License-Identifier: Apache-2.0
// inference_time.cpp: the time of inference of a trained network as executed.
#include "experiments/trainer/evaluation/inference_time.h"

#include <algorithm>
#include <chrono>
#include <functional>

namespace convscope {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWarmup = 3;           // number of warm-up batches
constexpr int kLeast = 5;            // minimum number of timed batches
constexpr int kMax = 200;            // more do not improve the median
constexpr double kEnough_s = 0.25;   // of timed batches
constexpr std::size_t kBatches = 4;  // number of different ones, in turn

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double median_of_runs(const std::function<void(std::size_t)>& run) {
  std::vector<double> seconds;
  double sum = 0;
  for (std::size_t i = 0; seconds.size() < kMax; ++i) {
    const Clock::time_point start = Clock::now();
    run(i);
    const double took = seconds_since(start);
    if (i < kWarmup) continue;
    seconds.push_back(took);
    sum += took;
    if (sum > kEnough_s && seconds.size() >= kLeast) break;
  }
  return median(std::move(seconds));
}

// Returns the first full batches, on the device.
std::vector<Tensor> full_batches(Loader& loader, Device device) {
  std::vector<Tensor> out;
  Batch batch;
  loader.start_epoch(0);
  while (out.size() < kBatches && loader.next(batch)) {
    if (batch.x.dim(0) != loader.options().batch_size) break;
    out.push_back(device.type == DeviceType::cpu ? batch.x.clone() : batch.x.to(device));
  }
  return out;
}

// Times launches of full batches by the device's clock. The first pass makes the recordings.
std::optional<InferenceTime> time_recorded_steps(RecordedSteps& steps, std::int64_t batch_size) {
  std::vector<double> seconds;
  double sum = 0;
  for (int pass = 0; pass < kMax && (pass < 2 || sum < kEnough_s); ++pass) {
    steps.start_epoch(0, 0, 0);
    while (true) {
      while (steps.queue({}) > 0) {
      }
      if (steps.in_flight() == 0) break;
      const RecordedSteps::Launch launch = steps.collect();
      if (pass == 0 || launch.images_per_step != batch_size) continue;
      seconds.push_back(launch.seconds / launch.steps);
      sum += launch.seconds;
    }
    if (pass > 0 && seconds.empty()) return std::nullopt;
  }
  return InferenceTime{median(std::move(seconds)),
                       planned_kernels(steps.plan(), /*recorded=*/true)};
}

}  // namespace

std::optional<InferenceTime> measure_inference(Module& model, Loader& loader, Device device,
                                               bool plans, RecordedSteps* recorded) {
  if (loader.dataset().size() < loader.options().batch_size) return std::nullopt;
  if (recorded != nullptr) return time_recorded_steps(*recorded, loader.options().batch_size);
  const std::vector<Tensor> batches = full_batches(loader, device);
  if (batches.empty()) return std::nullopt;
  const bool was_training = model.is_training();
  const NoGrad no_grad;
  model.eval();
  const DeviceBackend& backend = backend_of(device);
  InferenceTime out;
  std::string why = "the config says so";
  const auto plan =
      plans ? StepPlan::make(model, batches[0].shape(), PlanMode::inference, &why) : nullptr;
  if (plan) plan->prepare();
  out.batch_s = median_of_runs([&](std::size_t i) {
    const Tensor& x = batches[i % batches.size()];
    if (plan) {
      plan->infer(x);
    } else {
      model.forward(Variable(x));
    }
    backend.synchronize(device.index);
  });
  out.kernels = plan ? planned_kernels(*plan)
                     : dynamic_kernels(model, batches[0].shape(), device, PlanMode::inference, why);
  model.train(was_training);
  return out;
}

}  // namespace convscope
