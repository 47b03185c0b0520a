// SPDX-License-Identifier: Apache-2.0
// train_step_shared.cpp: a training step whose batch several processes share, or that one process
// computes in chunks. All processes end it with the same bits of loss, gradients and weights.
#include <algorithm>
#include <cmath>

#include "experiments/trainer/train_step.h"
#include "framework/autograd/leaf_watch.h"
#include "framework/memory/memory.h"

namespace convscope {
namespace {

// Positions in facts_, counted from the end of the losses: facts_ begins with one loss per part.
enum Fact : std::size_t { kCorrect, kSignals, kSignalSum, kFacts };

}  // namespace

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

// Runs forward and backward of one of this process's chunks. Returns false if the chunk has no
// images, or if the loss is not finite.
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
  loss_ = Variable();
  model_.zero_grad();
  double loss = 0;
  StepResult own;
  if (rows > 0) {
    const Batch mine{.x = batch.x.slice_rows(first, rows),
                     .labels = batch.labels.slice_rows(first, rows),
                     .index = batch.index};
    choose_plan(mine.x.shape());
    const Batch here = feed_.send(mine);
    reset_peak(device_);
    loss = forward(here, own);
    facts_[part] = weight * loss;
    facts_[parts + kCorrect] += static_cast<double>(own.correct);
    result.forward_bytes = std::max(result.forward_bytes, own.forward_bytes);
    result.workspace_peak_bytes = std::max(result.workspace_peak_bytes, own.workspace_peak_bytes);
  }
  if (is_last) queue_facts();
  if (rows == 0 || !std::isfinite(loss)) {  // all others will see the loss, and no process updates
    loss_ = Variable();
    exchange_->no_images();
    if (is_last) exchange_->finish();
    return false;
  }

  reset_peak(device_);
  timer_.lap();
  exchange_->begin_backward(static_cast<float>(weight));
  const auto ready = [this](const Variable& parameter) { exchange_->ready(parameter); };
  if (plan_ != nullptr) {
    plan_->backward(ready);
  } else {
    const LeafWatch watch(ready);
    backward_of_graph();
  }
  exchange_->end_backward();
  if (is_last) {
    const double before = share_.group != nullptr ? share_.group->waited_seconds() : 0;
    exchange_->finish();
    if (share_.group != nullptr) result.exchange_s = share_.group->waited_seconds() - before;
  }
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

StepResult TrainStep::run_shared(const Batch& batch, double lr) {
  StepResult result;
  result.images = batch.whole > 0 ? batch.whole : batch.x.dim(0);
  facts_.assign(static_cast<std::size_t>(share_.parts()) + kFacts, 0.0);
  exchange_->begin_step();
  const std::int64_t step = model_.step();
  bool timed = false;
  for (int chunk = 0; chunk < share_.chunks; ++chunk) {
    model_.set_step(step_of_part(step, share_.first_part() + chunk));
    timed = run_part(batch, chunk, result);
  }
  model_.set_step(step);
  read_facts(result);
  if (std::isfinite(result.loss)) {
    result.skipped = !unscale(lr);
    if (!result.skipped) update(lr);
  }
  if (timed) {
    timer_.lap();
    result.update_s = timer_.seconds(kUpdatePhase);
    result.forward_s += timer_.seconds(kForwardPhase);
    result.backward_s += timer_.seconds(kBackwardPhase);
  }
  result.planned = plan_ != nullptr;
  if (plan_ != nullptr) plan_->tell(nullptr, nullptr);
  watch(nullptr, nullptr);
  return result;
}

}  // namespace convscope
