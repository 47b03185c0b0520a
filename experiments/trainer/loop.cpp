// SPDX-License-Identifier: Apache-2.0
// loop.cpp: the training loop: epochs of steps, and the steps, one by one or several recorded ones
// in a launch. Everything else is a hook (hook.h).
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "experiments/run_folder/layer_table.h"
#include "experiments/trainer/checkpoint.h"
#include "experiments/trainer/ranks/shared_training.h"
#include "experiments/trainer/signals.h"
#include "experiments/trainer/trainer.h"
#include "framework/distributed/process_group.h"
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

namespace {

// Writes to a run's status.json that the run stopped, and why, when a process of its group is lost
// or has failed. After a loss the run can resume from its checkpoint.
class LostNote {
 public:
  // Notes in the run's status that the group was lost; does nothing for a null group. The group's
  // watching thread writes the status, because the training thread may hang.
  LostNote(ProcessGroup* group, const RunFolder& folder) : group_(group) {
    if (group_ == nullptr) return;
    group_->on_lost([&folder](int exit_code, const std::string& sentence) {
      try {
        RunStatus status = read_run_status(folder.path());
        status.state = exit_code == ProcessGroup::kLostExitCode ? "INTERRUPTED" : "FAILED";
        status.reason = sentence;
        status.exit_code = exit_code;
        folder.log(sentence);
        folder.set_status(status);
      } catch (const Error&) {  // the sentence is on the terminal
      }
    });
  }
  ~LostNote() {
    if (group_ != nullptr) group_->on_lost({});
  }
  LostNote(const LostNote&) = delete;
  LostNote& operator=(const LostNote&) = delete;

 private:
  ProcessGroup* group_;
};

}  // namespace

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

// ---- the steps ----

StepRunner::StepRunner(Training& run)
    : run_(run),
      step_(*run.setup.model, *run.setup.optimizer, run.setup.clip_norm, run.setup.device,
            run.setup.data_bytes, run.setup.plan, run.setup.loss),
      exchange_(exchange_of(*run.setup.model, run.setup.device, run.setup.share)) {
  const TrainingSetup& setup = run_.setup;
  if (exchange_) {
    step_.share(exchange_.get(), setup.share, stop_signal);
    run_.folder.log(share_text(setup.share, *exchange_));
  }
  loss_scale_.restore(run_.state.loss_scale);
  if (setup.scale_loss) step_.scale_loss(&loss_scale_);
  if (setup.device.type == DeviceType::cpu || !setup.plan) return;
  const LoaderOptions& images = setup.train->options();
  const std::string why =
      recording_obstacle({.augments = images.mirror || images.crop_padding > 0,
                          .has_pixel_labels = setup.train->dataset().label_shape().rank() > 0});
  may_record_ = why.empty();
  if (!may_record_) run_.folder.log(cat("steps: not recorded, because ", why));
}

std::int64_t StepRunner::recordable() {
  if (!may_record_) return 0;
  const std::int64_t steps = run_.steps_without_host();
  return steps > 0 && record() ? steps : 0;
}

// Records the steps. Records them again when masks or quantisers have changed what a step computes.
bool StepRunner::record() {
  if (recorded_ && recorded_->is_current()) return true;
  const bool is_first = recorded_ == nullptr;
  recorded_.reset();
  const TrainingSetup& setup = run_.setup;
  std::string why;
  std::function<void()> rest;
  if (setup.pruner) rest = [pruner = setup.pruner.get()] { pruner->rest(); };
  recorded_ = RecordedSteps::make(*setup.model, setup.optimizer.get(), setup.clip_norm,
                                  *setup.train, setup.device, &why, rest, exchange_.get(),
                                  setup.scale_loss ? &loss_scale_ : nullptr, setup.loss);
  may_record_ = recorded_ != nullptr;
  if (!may_record_) run_.folder.log(cat("steps: not recorded, because ", why));
  if (may_record_ && is_first) run_.folder.log(recorded_->text());
  return may_record_;
}

// The host queues launches ahead and reads the results of each launch.
void StepRunner::run_recorded(std::int64_t most, const std::function<void(const Step&)>& finish) {
  loads_ = false;
  const PlanMemory& memory = recorded_->plan().memory();
  const std::int64_t peak =
      memory_stats(run_.setup.device).live_bytes - run_.setup.data_bytes - recorded_->data_bytes();
  report(&recorded_->plan(), Execution::recorded);
  TrainingState& now = run_.state;
  recorded_->start_epoch(now.epoch, now.batch, now.step);
  const auto rate = [this](std::int64_t step) { return run_.learning_rate(step); };
  double before = RunClock::now();
  std::int64_t queued_steps = run_.steps_in_process;
  while (true) {
    while (run_.stop_signal == 0) {
      if (looks_at(queued_steps + 1, Execution::recorded)) {
        recorded_->watch(&costs_->forward(), &costs_->backward());
      }
      const auto at_once = std::min<std::int64_t>(most, RecordedSteps::kMaxSteps);
      const int queued = recorded_->queue(rate, static_cast<int>(at_once));
      queued_steps += queued;
      most -= queued;
      if (queued == 0) break;
    }
    if (recorded_->in_flight() == 0) return;
    const RecordedSteps::Launch launch = recorded_->collect();
    const double after = RunClock::now();
    if (launch.watched) costs_->add(recorded_->plan());
    for (int i = 0; i < launch.steps; ++i) {
      if (run_.setup.scale_loss) loss_scale_.restore(launch.outcomes[i].scale);
      const std::int64_t skipped = std::exchange(now.loss_scale, loss_scale_.state()).skipped;
      finish({.result = {.loss = static_cast<double>(launch.outcomes[i].loss),
                         .images = launch.images_per_step,
                         .correct = launch.outcomes[i].correct,
                         .whole_s = launch.seconds / launch.steps,
                         .forward_bytes = memory.kept_bytes,
                         .backward_peak_bytes = peak,
                         .workspace_peak_bytes = memory.workspace_bytes,
                         .skipped = now.loss_scale.skipped > skipped},
              .lr = run_.learning_rate(now.step),
              .seconds = (after - before) / launch.steps,
              .recorded = true});
    }
    before = after;
    if (run_.stop_signal == 0) run_.stop_signal = agreed_stop(run_.setup.share.group);
  }
}

bool StepRunner::load(Step& step) {
  if (run_.state.batch == 0) loads_ = false;  // of the epoch before
  if (!loads_) run_.setup.train->start_epoch(run_.state.epoch, run_.state.batch);
  const double asked = RunClock::now();
  if (!std::exchange(loads_, true)) last_s_ = asked;
  if (!run_.setup.train->next(batch_)) return loads_ = false;
  step.waited_s = RunClock::now() - asked;
  step.lr = run_.learning_rate(run_.state.step);
  run_.setup.model->set_step(run_.state.step);
  return true;
}

void StepRunner::run(Step& step) {
  const bool is_full = batch_.whole == run_.setup.train->options().batch_size;
  const bool looks = is_full && looks_at(run_.steps_in_process + 1, single_);
  if (looks) step_.watch(&costs_->forward(), &costs_->backward());
  step.result = step_.run(batch_, step.lr);
  single_ = step_.plan() ? Execution::planned : Execution::dynamic;
  if (logged_.insert(step_.text()).second) {
    run_.folder.log(step_.text());
    report(step_.plan(), single_);
  }
  if (looks && single_ == reported_ && std::isfinite(step.result.loss)) {
    step_.plan() ? costs_->add(*step_.plan()) : costs_->add(*run_.setup.model);
  }
  run_.state.loss_scale = loss_scale_.state();
  const double now = RunClock::now();
  step.seconds = now - std::exchange(last_s_, now);
}

void StepRunner::expect_other_kernels(bool also_log) {
  reported_ = Execution::nothing;
  if (also_log) logged_.clear();
}

// Before the first step, layers.csv has the planned kernels. When the execution of steps is known
// (dynamic, planned or recorded), this function writes the kernels that run. Single steps with a
// slower execution, because they need the host, do not change the file.
void StepRunner::report(const StepPlan* plan, Execution execution) {
  if (execution <= reported_) return;
  reported_ = execution;
  TrainingSetup& setup = run_.setup;
  if (setup.log_layers) costs_ = std::make_unique<LayerCosts>(setup.device);
  kernels_ = std::make_unique<StepKernels>(
      plan != nullptr ? planned_kernels(*plan, execution == Execution::recorded)
                      : dynamic_kernels(*setup.model, setup.input(), setup.device,
                                        PlanMode::training, step_.why_dynamic()));
  const LayerTable table = layer_table(*setup.model, setup.input(), *kernels_);
  setup.facts.algorithm = table.algorithms;
  write(table.csv);
}

void StepRunner::write_layers(const StepKernels* inference) {
  if (!kernels_) return;
  write(layer_table(*run_.setup.model, run_.setup.input(), *kernels_, costs_.get(), inference).csv);
}

void StepRunner::write(const std::string& csv) {
  if (csv == run_.setup.layers_csv) return;
  run_.setup.layers_csv = csv;
  run_.folder.write("layers.csv", csv);
}

// Samples a step only if it has the execution that layers.csv reports, and if it is not a warm-up
// step.
bool StepRunner::looks_at(std::int64_t step, Execution execution) {
  return costs_ != nullptr && execution == reported_ && step > kTimingWarmupSteps &&
         costs_->look(step);
}

}  // namespace convscope
