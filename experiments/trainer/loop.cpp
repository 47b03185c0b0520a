// SPDX-License-Identifier: Apache-2.0
// loop.cpp: the training loop: epochs of steps. Everything else is a hook (hook.h).
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "experiments/trainer/checkpoint.h"
#include "experiments/trainer/ranks/lost_note.h"
#include "experiments/trainer/ranks/shared_training.h"
#include "experiments/trainer/signals.h"
#include "experiments/trainer/trainer.h"
#include "framework/error_phase.h"
#include "framework/memory/memory.h"
#include "layers/dispatch/check_results.h"

namespace convscope {

int Trainer::train() {
  for (const auto& hook : hooks) hook->on_start();
  setup.model->train();
  while (goes_on()) {
    for (const auto& hook : hooks) hook->before_epoch();
    if (!train_epoch() || !evaluate()) {
      return stop({.state = "INTERRUPTED",
                   .reason = cat("signal ", stop_signal, " after step ", state.step),
                   .exit_code = 128 + stop_signal});
    }
    count_epoch();
    for (const auto& hook : hooks) hook->after_epoch();
  }
  if (state.epoch == setup.epochs || stops_early()) {
    return stop({.state = "DONE", .exit_code = 0});
  }
  return stop({.state = "INTERRUPTED",
               .reason = cat("the limit of ", state.epoch, " epochs was reached"),
               .exit_code = 0});
}

bool Trainer::train_epoch() {
  if (!runner) runner.reset(new StepRunner(*this));
  const std::int64_t allocations = memory_stats(setup.device).system_allocations;
  while (state.batch < setup.train->batches_per_epoch() && stop_signal == 0) {
    if (const std::int64_t steps = runner->recordable(); steps > 0) {
      runner->run_recorded(steps, [this](const Step& step) { finish(step); });
      continue;
    }
    Step step;
    if (!runner->load(step)) break;
    for (const auto& hook : hooks) hook->before_step();
    runner->run(step);
    finish(step);
    stop_signal = setup.share.is_shared() ? step.result.stop_signal : convscope::stop_signal();
  }
  state.epoch_allocations = memory_stats(setup.device).system_allocations - allocations;
  return stop_signal == 0;
}

void Trainer::finish(const Step& step) {
  if (!std::isfinite(step.result.loss)) {
    fail(ErrorKind::kRun, "train",
         cat("expected a finite loss, got ", step.result.loss, " at step ", state.step + 1,
             ", epoch ", state.epoch + 1, ", learning rate ", step.lr, kept_checkpoint(),
             "; try a smaller optim.lr, a warm-up or optim.clip_grad_norm"));
  }
  count(step);
  for (const auto& hook : hooks) hook->after_step(step);
}

bool Trainer::evaluate() {
  return std::ranges::all_of(hooks, [](const auto& hook) { return hook->evaluate(); });
}

int Trainer::stop(const RunStatus& status) {
  progress.clear();
  state.run_s = clock.seconds();
  for (const auto& hook : hooks) hook->on_stop(status);
  return status.exit_code;
}

Trainer::Trainer(TrainingSetup& setup, RunFolder& folder, Progress& progress)
    : Training{.setup = setup, .folder = folder, .progress = progress} {
  for (const auto hook :
       {alarm_hook, removal_hook, pruning_hook, quantization_hook, rank_hook, evaluation_hook,
        metrics_hook, checkpoint_hook, result_hook, status_hook}) {
    hooks.push_back(hook(*this));
  }
}

Trainer::~Trainer() = default;

void Trainer::resume() { resumed_from_ = resume_from_checkpoint(*this); }

int Trainer::run() {
  const StopSignals signals;
  load = LoadSpan();
  clock.start(state.run_s);
  const LostNote lost_note(setup.share.group, folder);
  forget_check_results();
  try {
    return in_phase(ErrorKind::kRun, [this] { return train(); });
  } catch (const std::exception& error) {
    const auto* ours = dynamic_cast<const Error*>(&error);
    try {  // the disk may be full: then the first failure is reported
      progress.clear();
      folder.log(cat("failed: ", error.what()));
      const RunStatus failed = {.state = "FAILED",
                                .reason = error.what(),
                                .exit_code = ours != nullptr ? exit_code(ours->kind()) : 1};
      for (const auto& hook : hooks) hook->on_stop(failed);
    } catch (const Error&) {
    }
    throw;
  }
}

double Training::learning_rate(std::int64_t step) const {
  const std::int64_t per_epoch = setup.train->batches_per_epoch();
  return setup.learning_rate(
      {.step = step, .total_steps = per_epoch * setup.epochs, .steps_per_epoch = per_epoch});
}

bool Training::goes_on() const {
  const std::int64_t last =
      setup.epochs_now > 0 ? std::min(setup.epochs_now, setup.epochs) : setup.epochs;
  return state.epoch < last && !stops_early();
}

bool Training::stops_early() const {
  return setup.early_stop.patience && state.waited_evaluations >= *setup.early_stop.patience;
}

std::int64_t Training::steps_without_host() const {
  const std::int64_t left = setup.train->batches_per_epoch() - state.batch;
  std::int64_t steps = 0;
  const auto needs_host = [&](const std::unique_ptr<Hook>& hook) {
    return hook->needs_host(state.step + steps, steps + 1 == left);
  };
  while (steps < left && std::none_of(hooks.begin(), hooks.end(), needs_host)) ++steps;
  return steps;
}

void Training::count(const Step& step) {
  ++state.step;
  ++state.batch;
  state.epoch_loss.add(step.result);
  state.window_loss.add(step.result);
  state.epoch_steps.add(step.result, step.waited_s);
  const bool warm = ++steps_in_process > kTimingWarmupSteps;
  (warm ? state.run_steps : state.warmup_steps).add(step.result, step.waited_s);
  state.epoch_s += step.seconds;
}

void Training::count_epoch() {
  ++state.epoch;
  state.batch = 0;
  state.last_epoch = std::exchange(state.epoch_loss, {});
  last_epoch_steps = std::exchange(state.epoch_steps, {});
  last_epoch_s = std::exchange(state.epoch_s, 0);
}

void Training::restart_averages() {
  state.run_steps = state.warmup_steps = {};
  steps_in_process = 0;
}

void Training::say(const std::string& sentence) const {
  folder.log(sentence);
  progress.line(sentence);
}

std::string Training::kept_checkpoint() const {
  return std::filesystem::exists(folder.file(kLastCheckpoint))
             ? "; the last good checkpoint is kept"
             : "";
}

}  // namespace convscope
