// SPDX-License-Identifier: Apache-2.0
// train_step.cpp: one training step, with its times and memory. Several processes may share
// the batch, or one process computes it in chunks. All processes end the step with the same bits of
// loss, gradients and weights.
#include "experiments/trainer/train_step.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "framework/autograd/leaf_watch.h"
#include "framework/check.h"
#include "framework/memory/memory.h"
#include "optim/update.h"

namespace convscope {
namespace {

// Positions in facts_, counted from the end of the losses: facts_ begins with one loss per part.
enum Fact : std::size_t { kCorrect, kSignals, kSignalSum, kFacts };

// A run has two batch shapes: the full batch and the last batch of an epoch.
constexpr std::size_t kMaxPlans = 4;

void begin_watching(WorkClock* clock) {
  if (clock == nullptr) return;
  clock->start();
  clock->begin(nullptr);
}

}  // namespace

PhaseTimer::PhaseTimer(Device device) : device_(device), backend_(backend_of(device)) {
  for (void*& mark : marks_) mark = backend_.make_mark(device.index);
}

PhaseTimer::~PhaseTimer() {
  for (void* mark : marks_) backend_.free_mark(device_.index, mark);
}

void PhaseTimer::start() {
  readings_ = 0;
  lap();
}

void PhaseTimer::lap() {
  CONVSCOPE_CHECK(readings_ <= kMaxPhases, "phase_timer", "expected at most ", kMaxPhases,
                  " phases after start()");
  backend_.set_mark(device_.index, marks_[static_cast<std::size_t>(readings_++)]);
}

double PhaseTimer::seconds(int phase) const {
  CONVSCOPE_CHECK(phase >= 0 && phase + 1 < readings_, "phase_timer", "expected a phase below ",
                  readings_ - 1, ", got ", phase);
  const auto begin = static_cast<std::size_t>(phase);
  return 1e-3 * backend_.ms_between(device_.index, marks_[begin], marks_[begin + 1]);
}

TrainStep::TrainStep(Module& model, Optimizer& optimizer, double clip_norm, Device device,
                     std::int64_t base_bytes, bool plans, const Loss& loss)
    : model_(model),
      optimizer_(optimizer),
      clip_norm_(clip_norm),
      device_(device),
      base_bytes_(base_bytes),
      may_plan_(plans),
      loss_type_(loss.for_parts()),
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
                             plans_.empty() ? Ref<Storage>() : plans_.front()->arena(),
                             /*to_show=*/false, loss_type_);
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
    loss_ = loss_type_(logits, batch.labels);
    if (forward_clock_ != nullptr) forward_clock_->begin(nullptr);
  }
  timer_.lap();
  const MemoryStats kept = memory_stats(device_);
  result.forward_bytes = kept.live_bytes - before.live_bytes;
  result.workspace_peak_bytes = kept.workspace_peak_bytes;
  const double loss = loss_.value().item();
  if (std::isfinite(loss)) result.correct = loss_type_.correct(logits.value(), batch.labels);
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

// Queues the exchange of losses, counts and stop signals over the processes. They are known before
// the backward pass, so they are exchanged while it runs.
void TrainStep::queue_facts() {
  const auto parts = static_cast<std::size_t>(share_.parts());
  const int signal = signal_ != nullptr ? signal_() : 0;
  facts_[parts + kSignals] = signal != 0 ? 1 : 0;
  facts_[parts + kSignalSum] = signal;
  if (share_.group != nullptr) {
    facts_ticket_ =
        share_.group->queue_sum(facts_.data(), static_cast<std::int64_t>(facts_.size()));
  }
}

void TrainStep::read_facts(StepResult& result) {
  if (share_.group != nullptr) share_.group->wait(facts_ticket_);
  const auto parts = static_cast<std::size_t>(share_.parts());
  result.loss = 0;
  for (std::size_t part = 0; part < parts; ++part) result.loss += facts_[part];
  result.correct = std::llround(facts_[parts + kCorrect]);
  const double signals = facts_[parts + kSignals];
  result.stop_signal =
      signals > 0 ? static_cast<int>(std::lround(facts_[parts + kSignalSum] / signals)) : 0;
}

// Computes one of this process's chunks of the batch, or the whole batch. Returns false if the
// chunk has no images, or if the loss is not finite.
bool TrainStep::run_part(const Batch& batch, int chunk, StepResult& result) {
  const auto part = static_cast<std::size_t>(share_.first_part() + chunk);
  const auto parts = static_cast<std::size_t>(share_.parts());
  const auto at = [&](std::size_t p) {
    return first_of_part(result.images, static_cast<std::int64_t>(p), share_.parts());
  };
  const std::int64_t rows = at(part + 1) - at(part);
  const std::int64_t first = at(part) - at(static_cast<std::size_t>(share_.first_part()));
  const double weight = static_cast<double>(rows) / static_cast<double>(result.images);
  const bool is_last = chunk + 1 == share_.chunks;
  loss_ = Variable();  // left by a failed step
  model_.zero_grad();
  double loss = 0;
  if (rows > 0) {
    const bool is_whole = rows == batch.x.dim(0);
    const Batch mine{.x = is_whole ? batch.x : batch.x.slice_rows(first, rows),
                     .labels = is_whole ? batch.labels : batch.labels.slice_rows(first, rows),
                     .index = batch.index};
    choose_plan(mine.x.shape());
    const Batch here = feed_.send(mine);
    reset_peak(device_);
    StepResult own;
    loss = forward(here, own);
    facts_[part] = weight * loss;
    facts_[parts + kCorrect] += static_cast<double>(own.correct);
    result.forward_bytes = std::max(result.forward_bytes, own.forward_bytes);
    result.workspace_peak_bytes = std::max(result.workspace_peak_bytes, own.workspace_peak_bytes);
  }
  if (is_last) queue_facts();
  if (rows == 0 || !std::isfinite(loss)) {  // all others will see the loss, and no process updates
    loss_ = Variable();
    if (exchange_ != nullptr) exchange_->no_images();
    if (exchange_ != nullptr && is_last) exchange_->finish();
    return false;
  }

  reset_peak(device_);
  timer_.lap();
  exchange_ != nullptr ? shared_backward(static_cast<float>(weight), is_last, result) : backward();
  timer_.lap();
  const MemoryStats peak = memory_stats(device_);
  result.backward_peak_bytes = std::max(result.backward_peak_bytes, peak.peak_bytes - base_bytes_);
  result.workspace_peak_bytes = std::max(result.workspace_peak_bytes, peak.workspace_peak_bytes);
  if (!is_last) {  // the timer restarts with the next chunk
    result.forward_s += timer_.seconds(kForwardPhase);
    result.backward_s += timer_.seconds(kBackwardPhase);
  }
  return true;
}

void TrainStep::shared_backward(float weight, bool is_last, StepResult& result) {
  exchange_->begin_backward(weight);
  const auto ready = [this](const Variable& parameter) { exchange_->ready(parameter); };
  if (plan_ != nullptr) {
    plan_->backward(ready);
  } else {
    const LeafWatch watch(ready);
    backward_of_graph();
  }
  exchange_->end_backward();
  if (!is_last) return;
  const double before = share_.group != nullptr ? share_.group->waited_seconds() : 0;
  exchange_->finish();
  if (share_.group != nullptr) result.exchange_s = share_.group->waited_seconds() - before;
}

// Tells the loss how many labels each class has in the whole batch, if parts of the batch need it.
void TrainStep::count_labels(const Batch& batch) {
  const std::int64_t classes = loss_type_.weighted_classes();
  if (classes == 0 || !share_.is_shared()) return;
  std::vector<double> counts(static_cast<std::size_t>(classes));
  for (std::int64_t i = 0; i < batch.labels.numel(); ++i) {
    const std::int32_t label = batch.labels.data<std::int32_t>()[i];
    if (label >= 0 && label < classes) ++counts[static_cast<std::size_t>(label)];
  }
  if (share_.group != nullptr) share_.group->sum(counts.data(), classes);
  LabelCounts all;
  for (const double count : counts) all.push_back(std::llround(count));
  loss_type_.set_label_counts(std::move(all));
}

StepResult TrainStep::run(const Batch& batch, double lr) {
  StepResult result;
  result.images = batch.whole > 0 ? batch.whole : batch.x.dim(0);
  result.labels_per_image = batch.labels.shape().stride(0);
  facts_.assign(static_cast<std::size_t>(share_.parts()) + kFacts, 0.0);
  if (exchange_ != nullptr) exchange_->begin_step();
  count_labels(batch);
  const std::int64_t step = model_.step();
  bool timed = false;
  for (int chunk = 0; chunk < share_.chunks; ++chunk) {
    model_.set_step(step_of_part(step, share_.first_part() + chunk, share_.parts()));
    timed = run_part(batch, chunk, result);
  }
  model_.set_step(step);
  read_facts(result);
  if (std::isfinite(result.loss)) {  // otherwise the weights stay unchanged
    result.skipped = !unscale(lr);
    if (!result.skipped) update(lr);
  }
  if (timed) {
    timer_.lap();
    result.update_s = timer_.seconds(kUpdatePhase);  // the last one: it waits for the device
    result.forward_s += timer_.seconds(kForwardPhase);
    result.backward_s += timer_.seconds(kBackwardPhase);
  }
  result.planned = plan_ != nullptr;
  if (plan_ != nullptr) plan_->tell(nullptr, nullptr);
  watch(nullptr, nullptr);
  return result;
}

}  // namespace convscope
