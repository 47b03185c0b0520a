// SPDX-License-Identifier: Apache-2.0
// train_step.cpp: one training step, with its times and memory.
#include "experiments/trainer/train_step.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "framework/memory/memory.h"
#include "framework/ops/softmax_cross_entropy.h"
#include "optim/update.h"

namespace convscope {
namespace {

// A run has two batch shapes: the full batch and the last batch of an epoch.
constexpr std::size_t kMaxPlans = 4;

void begin_watching(WorkClock* clock) {
  if (clock == nullptr) return;
  clock->start();
  clock->begin(nullptr);
}

}  // namespace

TrainStep::TrainStep(Module& model, Optimizer& optimizer, double clip_norm, Device device,
                     std::int64_t base_bytes, bool plans)
    : model_(model),
      optimizer_(optimizer),
      clip_norm_(clip_norm),
      device_(device),
      base_bytes_(base_bytes),
      may_plan_(plans),
      why_dynamic_(plans ? "" : "the config says so"),
      timer_(device),
      feed_(device) {
  for (const NamedParameter& parameter : model.parameters()) {
    parameters_.push_back({parameter.name, parameter.variable});
  }
}

void TrainStep::choose_plan(const Shape& input) {
  plan_ = nullptr;
  if (!may_plan_ || !model_.is_training()) return;
  for (const auto& plan : plans_) {
    if (plan->input() == input && plan->is_current()) plan_ = plan.get();
  }
  if (plan_ != nullptr) return;
  // A compiled graph that no longer fits the network is kept, because it may fit again: while a
  // quantiser counts clipped values, the network differs for one step only.
  if (plans_.size() == kMaxPlans) {
    std::erase_if(plans_, [](const auto& plan) { return !plan->is_current(); });
  }
  if (plans_.size() == kMaxPlans) plans_.clear();
  why_dynamic_.clear();
  // Graphs never run at the same time, so they share their memory.
  auto plan = StepPlan::make(model_, input, PlanMode::training, &why_dynamic_,
                             plans_.empty() ? Ref<Storage>() : plans_.front()->arena());
  if (!plan) return;
  plans_.push_back(std::move(plan));
  plan_ = plans_.back().get();
}

// Returns the loss. After a dynamic step, loss_ holds the graph for the backward pass.
double TrainStep::forward(const Batch& batch, StepResult& result) {
  const MemoryStats before = memory_stats(device_);
  timer_.start();
  if (plan_ != nullptr) {
    send_scale();
    plan_->tell(forward_clock_, backward_clock_);
    const double loss = plan_->forward(batch.x, batch.labels);
    timer_.lap();
    result.forward_bytes = plan_->memory().kept_bytes;
    result.workspace_peak_bytes = plan_->memory().workspace_bytes;
    if (std::isfinite(loss)) result.correct = plan_->correct();
    return loss;
  }
  Variable logits;
  {
    const WorkWatch watch(forward_clock_);
    begin_watching(forward_clock_);
    logits = model_.forward(Variable(batch.x));
    loss_ = softmax_cross_entropy(logits, batch.labels);
    if (forward_clock_ != nullptr) forward_clock_->begin(nullptr);
  }
  timer_.lap();
  const MemoryStats kept = memory_stats(device_);
  result.forward_bytes = kept.live_bytes - before.live_bytes;
  result.workspace_peak_bytes = kept.workspace_peak_bytes;
  const double loss = loss_.value().item();
  if (std::isfinite(loss)) result.correct = count_correct(logits.value(), batch.labels);
  return loss;
}

void TrainStep::backward_of_graph() {
  const Variable loss = std::exchange(loss_, Variable());
  const WorkWatch watch(backward_clock_);
  begin_watching(backward_clock_);
  if (loss_scale_ == nullptr) {
    loss.backward();
  } else {
    loss.backward(Tensor::full(loss.shape(), loss_scale_->scale(), loss.dtype(), device_));
  }
}

void TrainStep::backward() {
  if (plan_ != nullptr) return plan_->backward();
  std::vector<Tensor> before;
  if (may_plan_) {
    for (const OptimParameter& p : parameters_) before.push_back(p.variable.state()->grad);
  }
  backward_of_graph();
  // Compiled steps hold the addresses of the gradient tensors, and a dynamic graph may have
  // replaced the tensors. So the new values are copied into the old tensors.
  for (std::size_t i = 0; i < before.size(); ++i) {
    Tensor& now = parameters_[i].variable.state()->grad;
    if (!before[i].defined() || now.raw_data() == before[i].raw_data()) continue;
    before[i].copy_from(now);
    now = before[i];
  }
}

std::string TrainStep::text() const {
  if (plan_ == nullptr) return cat("steps: dynamic graph, because ", why_dynamic_);
  const PlanMemory& memory = plan_->memory();
  return cat("steps: planned, ", plan_->call_count(), " calls, one block of ", memory.arena_bytes,
             " bytes (at least ", memory.lower_bound_bytes, " are needed)");
}

// Copies the loss scale to the device. The next compiled step multiplies the gradient of the loss
// by it.
void TrainStep::send_scale() {
  if (loss_scale_ == nullptr) return;
  if (!scale_.defined()) scale_ = Tensor::empty({1}, DType::f64, device_);
  scale_.fill(loss_scale_->scale());
  plan_->set_loss_scale(scale_.data<double>());
}

// Divides the gradients by the loss scale. Returns false when a gradient is not finite. In this
// case the weights are not updated, but the step is counted.
bool TrainStep::unscale(double lr) {
  if (loss_scale_ == nullptr || loss_scale_->unscale(parameters_)) return true;
  UpdateTable table(optimizer_.groups());
  optimizer_.list_step(lr, /*counts=*/true, table);
  return false;
}

void TrainStep::update(double lr) {
  if (clip_norm_ > 0) clip_gradient_norm(parameters_, clip_norm_);
  optimizer_.step(lr);
}

StepResult TrainStep::run(const Batch& batch, double lr) {
  return exchange_ != nullptr ? run_shared(batch, lr) : run_alone(batch, lr);
}

StepResult TrainStep::run_alone(const Batch& batch, double lr) {
  StepResult result;
  result.images = batch.x.dim(0);
  loss_ = Variable();  // left by a failed step
  model_.zero_grad();
  choose_plan(batch.x.shape());
  const Batch here = feed_.send(batch);
  reset_peak(device_);
  result.loss = forward(here, result);
  if (!std::isfinite(result.loss)) {  // the weights stay unchanged
    loss_ = Variable();
    watch(nullptr, nullptr);
    return result;
  }

  reset_peak(device_);
  timer_.lap();
  backward();
  timer_.lap();
  const MemoryStats peak = memory_stats(device_);
  result.backward_peak_bytes = peak.peak_bytes - base_bytes_;
  result.workspace_peak_bytes = std::max(result.workspace_peak_bytes, peak.workspace_peak_bytes);

  result.skipped = !unscale(lr);
  if (!result.skipped) update(lr);
  timer_.lap();
  result.update_s = timer_.seconds(kUpdatePhase);  // the last one: it waits for the device
  result.forward_s = timer_.seconds(kForwardPhase);
  result.backward_s = timer_.seconds(kBackwardPhase);
  result.planned = plan_ != nullptr;
  if (plan_ != nullptr) plan_->tell(nullptr, nullptr);
  watch(nullptr, nullptr);
  return result;
}

Evaluation evaluate(Module& model, Loader& loader, bool (*stop)(), bool plans,
                    std::vector<double>* batch_loss_sums) {
  const bool was_training = model.is_training();
  const NoGrad no_grad;
  model.eval();
  Evaluation result;
  double loss_sum = 0;
  std::int64_t correct = 0;
  Device device;
  for (const NamedParameter& parameter : model.parameters()) device = parameter.variable.device();
  Batch from_loader;
  BatchFeed feed(device);
  std::unique_ptr<StepPlan> plan;  // of the last shape
  std::string why_dynamic;
  loader.start_epoch(0);
  while (loader.next(from_loader)) {
    const Batch batch = feed.send(from_loader);
    const Shape& input = batch.x.shape();
    if (plans && why_dynamic.empty() && (!plan || plan->input() != input)) {
      plan = StepPlan::make(model, input, PlanMode::inference, &why_dynamic,
                            plan ? plan->arena() : Ref<Storage>());
      if (plan) plan->prepare();
    }
    const Variable logits =
        plan ? Variable(plan->infer(batch.x)) : model.forward(Variable(batch.x));
    const std::int64_t images = batch.x.dim(0);
    const double loss_of_batch =
        softmax_cross_entropy(logits, batch.labels).value().item() * static_cast<double>(images);
    loss_sum += loss_of_batch;
    if (batch_loss_sums != nullptr) batch_loss_sums->push_back(loss_of_batch);
    correct += count_correct(logits.value(), batch.labels);
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
