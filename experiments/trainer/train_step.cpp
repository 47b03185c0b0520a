// SPDX-License-Identifier: Apache-2.0
#include "experiments/trainer/train_step.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "framework/memory.h"
#include "framework/ops/softmax_cross_entropy.h"

namespace convscope {
namespace {

// Shapes of batches in a run: the full one and the last of an epoch.
constexpr std::size_t kMostPlans = 4;

using Clock = std::chrono::steady_clock;

double seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

TrainStep::TrainStep(Module& model, Optimizer& optimizer, double clip_norm, Device device,
                     std::int64_t base_bytes, bool plans)
    : model_(model),
      optimizer_(optimizer),
      clip_norm_(clip_norm),
      device_(device),
      base_bytes_(base_bytes),
      why_dynamic_(plans ? "" : "the config says so") {
  for (const NamedParameter& parameter : model.parameters()) {
    parameters_.push_back({parameter.name, parameter.variable});
  }
}

void TrainStep::choose_plan(const Shape& input) {
  plan_ = nullptr;
  if (!why_dynamic_.empty() || !model_.is_training()) return;
  std::erase_if(plans_, [](const auto& plan) { return !plan->is_current(); });
  for (const auto& plan : plans_) {
    if (plan->input() == input) plan_ = plan.get();
  }
  if (plan_ != nullptr) return;
  if (plans_.size() == kMostPlans) plans_.clear();
  // They never run at the same time, so they share their memory.
  auto plan = StepPlan::make(model_, input, PlanMode::training, &why_dynamic_,
                             plans_.empty() ? Ref<Storage>() : plans_.front()->arena());
  if (!plan) return;
  plans_.push_back(std::move(plan));
  plan_ = plans_.back().get();
}

// Returns the loss. A dynamic graph stays in loss_.
double TrainStep::forward(const Batch& batch, StepResult& result) {
  const Tensor labels = batch.labels.to(device_);
  const DeviceBackend& device = backend_of(device_);
  const MemoryStats before = memory_stats(device_);
  device.synchronize(device_.index);
  const Clock::time_point start = Clock::now();
  if (plan_ != nullptr) {
    const double loss = plan_->forward(batch.x, labels);
    result.forward_s = seconds(start, Clock::now());
    result.forward_bytes = plan_->memory().kept_bytes;
    result.workspace_peak_bytes = plan_->memory().workspace_bytes;
    if (std::isfinite(loss)) result.correct = plan_->correct();
    return loss;
  }
  const Variable logits = model_.forward(Variable(batch.x.to(device_)));
  loss_ = softmax_cross_entropy(logits, labels);
  device.synchronize(device_.index);
  result.forward_s = seconds(start, Clock::now());
  const MemoryStats kept = memory_stats(device_);
  result.forward_bytes = kept.live_bytes - before.live_bytes;
  result.workspace_peak_bytes = kept.workspace_peak_bytes;
  const double loss = loss_.value().item();
  if (std::isfinite(loss)) result.correct = count_correct(logits.value(), labels);
  return loss;
}

std::string TrainStep::text() const {
  if (plan_ == nullptr) return cat("steps: dynamic graph, because ", why_dynamic_);
  const PlanMemory& memory = plan_->memory();
  return cat("steps: planned, ", plan_->call_count(), " calls, one block of ", memory.arena_bytes,
             " bytes (at least ", memory.lower_bound_bytes, " are needed)");
}

void TrainStep::update(double lr) {
  if (clip_norm_ > 0) clip_gradient_norm(parameters_, clip_norm_);
  optimizer_.step(lr);
}

StepResult TrainStep::run(const Batch& batch, double lr) {
  const DeviceBackend& device = backend_of(device_);
  StepResult result;
  result.images = batch.x.dim(0);
  model_.zero_grad();
  choose_plan(batch.x.shape());
  reset_peak(device_);
  result.loss = forward(batch, result);
  if (!std::isfinite(result.loss)) {  // the weights stay as they were
    loss_ = Variable();
    return result;
  }

  reset_peak(device_);
  const Clock::time_point before_backward = Clock::now();
  if (plan_ != nullptr) {
    plan_->backward();
  } else {
    std::exchange(loss_, Variable()).backward();
  }
  device.synchronize(device_.index);
  const Clock::time_point after_backward = Clock::now();
  const MemoryStats peak = memory_stats(device_);
  result.backward_s = seconds(before_backward, after_backward);
  result.backward_peak_bytes = peak.peak_bytes - base_bytes_;
  result.workspace_peak_bytes = std::max(result.workspace_peak_bytes, peak.workspace_peak_bytes);

  update(lr);
  device.synchronize(device_.index);
  result.update_s = seconds(after_backward, Clock::now());
  return result;
}

Evaluation evaluate(Module& model, Loader& loader, bool (*stop)(), bool plans) {
  const bool was_training = model.is_training();
  const NoGrad no_grad;
  model.eval();
  Evaluation result;
  double loss_sum = 0;
  std::int64_t correct = 0;
  Device device;
  for (const NamedParameter& parameter : model.parameters()) device = parameter.variable.device();
  Batch batch;
  std::unique_ptr<StepPlan> plan;  // of the shape seen last
  std::string why_dynamic;
  loader.start_epoch(0);
  while (loader.next(batch)) {
    const Tensor labels = batch.labels.to(device);
    const Shape& input = batch.x.shape();
    if (plans && why_dynamic.empty() && (!plan || plan->input() != input)) {
      plan = StepPlan::make(model, input, PlanMode::inference, &why_dynamic,
                            plan ? plan->arena() : Ref<Storage>());
      if (plan) plan->prepare();
    }
    const Variable logits =
        plan ? Variable(plan->infer(batch.x)) : model.forward(Variable(batch.x.to(device)));
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
