// SPDX-License-Identifier: Apache-2.0
#include "experiments/trainer/train_step.h"

#include <chrono>
#include <cmath>

#include "framework/memory.h"
#include "framework/ops/softmax_cross_entropy.h"

namespace convscope {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

TrainStep::TrainStep(Module& model, Optimizer& optimizer, double clip_norm, Device device,
                     std::int64_t base_bytes)
    : model_(model),
      optimizer_(optimizer),
      clip_norm_(clip_norm),
      device_(device),
      base_bytes_(base_bytes) {
  for (const NamedParameter& parameter : model.parameters()) {
    parameters_.push_back({parameter.name, parameter.variable});
  }
}

StepResult TrainStep::run(const Batch& batch, double lr) {
  const DeviceBackend& device = backend_of(device_);
  StepResult result;
  model_.zero_grad();
  const Variable x(batch.x.to(device_));
  const Tensor labels = batch.labels.to(device_);
  result.images = batch.x.dim(0);

  reset_peak(device_);
  const MemoryStats before = memory_stats(device_);
  device.synchronize(device_.index);
  const Clock::time_point start = Clock::now();
  Variable logits = model_.forward(x);
  const Variable loss = softmax_cross_entropy(logits, labels);
  device.synchronize(device_.index);
  const Clock::time_point after_forward = Clock::now();
  const MemoryStats kept = memory_stats(device_);

  result.forward_s = seconds(start, after_forward);
  result.forward_bytes = kept.live_bytes - before.live_bytes;
  result.workspace_peak_bytes = kept.workspace_peak_bytes;
  result.loss = loss.value().item();
  if (!std::isfinite(result.loss)) return result;  // the weights stay as they were
  result.correct = count_correct(logits.value(), labels);
  logits = Variable();  // the graph alone decides how long they live

  reset_peak(device_);
  const Clock::time_point before_backward = Clock::now();
  loss.backward();
  device.synchronize(device_.index);
  const Clock::time_point after_backward = Clock::now();
  const MemoryStats peak = memory_stats(device_);
  result.backward_s = seconds(before_backward, after_backward);
  result.backward_peak_bytes = peak.peak_bytes - base_bytes_;
  if (peak.workspace_peak_bytes > result.workspace_peak_bytes) {
    result.workspace_peak_bytes = peak.workspace_peak_bytes;
  }

  if (clip_norm_ > 0) clip_gradient_norm(parameters_, clip_norm_);
  optimizer_.step(lr);
  device.synchronize(device_.index);
  result.update_s = seconds(after_backward, Clock::now());
  return result;
}

Evaluation evaluate(Module& model, Loader& loader, bool (*stop)()) {
  const bool was_training = model.is_training();
  const NoGrad no_grad;
  model.eval();
  Evaluation result;
  double loss_sum = 0;
  std::int64_t correct = 0;
  Device device;
  for (const NamedParameter& parameter : model.parameters()) device = parameter.variable.device();
  Batch batch;
  loader.start_epoch(0);
  while (loader.next(batch)) {
    const Tensor labels = batch.labels.to(device);
    const Variable logits = model.forward(Variable(batch.x.to(device)));
    const std::int64_t images = batch.x.dim(0);
    loss_sum += softmax_cross_entropy(logits, labels).value().item() * static_cast<double>(images);
    correct += count_correct(logits.value(), labels);
    result.images += images;
    if (stop != nullptr && stop()) {
      result.complete = false;
      break;
    }
  }
  if (result.images > 0) {
    result.loss = loss_sum / static_cast<double>(result.images);
    result.accuracy = 100.0 * static_cast<double>(correct) / static_cast<double>(result.images);
  }
  model.train(was_training);
  return result;
}

}  // namespace convscope
