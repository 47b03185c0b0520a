// SPDX-License-Identifier: Apache-2.0
// trainer_steps.cpp: runs the steps of an epoch one by one, or records them and launches several
// together.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "experiments/trainer/ranks/shared_training.h"
#include "experiments/trainer/trainer.h"
#include "framework/memory/memory.h"

namespace convscope {
namespace {

constexpr double kHeartbeatSeconds = 10;

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

// Chooses how the steps run, once per process.
void Trainer::prepare_steps() {
  if (step_) return;
  step_ = std::make_unique<TrainStep>(*setup_.model, *setup_.optimizer, setup_.clip_norm,
                                      setup_.device, setup_.data_bytes, setup_.plan);
  exchange_ = exchange_of(*setup_.model, setup_.device, setup_.share);
  if (exchange_) {
    step_->share(exchange_.get(), setup_.share, stop_signal);
    folder_.log(share_text(setup_.share, *exchange_));
  }
  loss_scale_.restore(state_.loss_scale);
  if (setup_.scale_loss) step_->scale_loss(&loss_scale_);
  logged_steps_.clear();
  steps_reported_ = Execution::nothing;
  if (setup_.device.type == DeviceType::cpu || !setup_.plan) return;
  const LoaderOptions& images = setup_.train->options();
  const std::string why =
      recording_obstacle({.augments = images.mirror || images.crop_padding > 0});
  may_record_ = why.empty();
  if (!may_record_) folder_.log(cat("steps: not recorded, because ", why));
}

// Records the steps. Records them again when masks or quantisers have changed what a step computes.
bool Trainer::record_steps() {
  if (recorded_ && recorded_->is_current()) return true;
  const bool is_first = recorded_ == nullptr;
  recorded_.reset();
  std::string why;
  std::function<void()> rest;
  if (setup_.pruner) rest = [pruner = setup_.pruner.get()] { pruner->rest(); };
  recorded_ = RecordedSteps::make(*setup_.model, setup_.optimizer.get(), setup_.clip_norm,
                                  *setup_.train, setup_.device, &why, rest, exchange_.get(),
                                  setup_.scale_loss ? &loss_scale_ : nullptr);
  may_record_ = recorded_ != nullptr;
  if (!may_record_) folder_.log(cat("steps: not recorded, because ", why));
  if (may_record_ && is_first) folder_.log(recorded_->text());
  return may_record_;
}

// Returns how many of the epoch's next steps can run without the host, because in these steps no
// mask changes and no quantiser calibrates or counts clipped values.
std::int64_t Trainer::steps_without_host() const {
  const std::int64_t left = setup_.train->batches_per_epoch() - state_.batch;
  std::int64_t steps = 0;
  while (steps < left) {
    const std::int64_t step = state_.step + steps;
    if (pruning_ && setup_.pruner->step_needs_host(step)) break;
    if (quantization_ && quantization_->step_needs_host(step, steps + 1 == left)) break;
    ++steps;
  }
  return steps;
}

// Before the first step, layers.csv has the planned kernels. When the execution of steps is known
// (dynamic, planned or recorded), this function writes the kernels that run. Single steps with a
// slower execution, because they need the host, do not change the file.
void Trainer::report_steps(const StepPlan* plan, Execution execution) {
  if (execution <= steps_reported_) return;
  steps_reported_ = execution;
  if (setup_.log_layers) layer_costs_ = std::make_unique<LayerCosts>(setup_.device);
  Shape input = {images_at_once(setup_.train->options().batch_size, setup_.share)};
  for (const std::int64_t size : setup_.train->dataset().sample_shape()) input.push_back(size);
  step_kernels_ = std::make_unique<StepKernels>(
      plan != nullptr ? planned_kernels(*plan, execution == Execution::recorded)
                      : dynamic_kernels(*setup_.model, input, setup_.device, PlanMode::training,
                                        step_->why_dynamic()));
  const LayerTable table = layer_table(*setup_.model, input, *step_kernels_);
  setup_.facts.algorithm = table.algorithms;
  write_layers(table);
}

// Samples a step only if it has the execution that layers.csv reports, and if it is not a warm-up
// step.
bool Trainer::looks_at(std::int64_t step, Execution execution) {
  return layer_costs_ != nullptr && execution == steps_reported_ && step > kTimingWarmupSteps &&
         layer_costs_->look(step);
}

void Trainer::write_layers(const LayerTable& table) {
  if (table.csv == setup_.layers_csv) return;
  setup_.layers_csv = table.csv;
  folder_.write("layers.csv", table.csv);
}

bool Trainer::train_epoch() {
  LossAlarm alarm(setup_.train->dataset().classes);
  alarm.restore(state_.alarm);
  prepare_steps();
  allocations_at_epoch_start_ = memory_stats(setup_.device).system_allocations;
  const std::int64_t batches = setup_.train->batches_per_epoch();
  while (state_.batch < batches) {
    const std::int64_t before = state_.batch;
    std::int64_t most = may_record_ ? steps_without_host() : batches;
    const bool by_device = may_record_ && most > 0 && record_steps();
    if (!may_record_) most = batches;
    if (!(by_device ? train_recorded(alarm, most)
                    : train_batches(alarm, std::max<std::int64_t>(most, 1)))) {
      return false;
    }
    if (state_.batch == before) break;  // the loader has no more
  }
  return true;
}

// Runs steps one by one: the loader prepares each batch, the host starts each step.
bool Trainer::train_batches(LossAlarm& alarm, std::int64_t most) {
  setup_.train->start_epoch(state_.epoch, state_.batch);
  Batch batch;
  double before = now_s();
  for (std::int64_t done = 0; done < most; ++done) {
    const double asked = now_s();
    if (!setup_.train->next(batch)) return true;
    const double waited = now_s() - asked;
    const double lr = learning_rate(state_.step);
    before_step();
    const bool is_full = batch.whole == setup_.train->options().batch_size;
    const bool looks = is_full && looks_at(steps_in_process_ + 1, single_steps_);
    if (looks) step_->watch(&layer_costs_->forward(), &layer_costs_->backward());
    const StepResult result = step_->run(batch, lr);
    if (logged_steps_.insert(step_->text()).second) {
      folder_.log(step_->text());
      report_steps(step_->plan(), step_->plan() ? Execution::planned : Execution::dynamic);
    }
    single_steps_ = step_->plan() ? Execution::planned : Execution::dynamic;
    if (looks && single_steps_ == steps_reported_ && std::isfinite(result.loss)) {
      step_->plan() ? layer_costs_->add(*step_->plan()) : layer_costs_->add(*setup_.model);
    }
    const double now = now_s();
    finish_step(alarm, result, waited, lr, now - before);
    before = now;
    stop_signal_ = exchange_ ? result.stop_signal : stop_signal();
    if (stop_signal_ != 0) return false;
  }
  return true;
}

// Runs the next steps of the epoch on the device; the host reads the results of each launch.
bool Trainer::train_recorded(LossAlarm& alarm, std::int64_t most) {
  const PlanMemory& memory = recorded_->plan().memory();
  const std::int64_t peak =
      memory_stats(setup_.device).live_bytes - setup_.data_bytes - recorded_->data_bytes();
  report_steps(&recorded_->plan(), Execution::recorded);
  recorded_->start_epoch(state_.epoch, state_.batch, state_.step);
  const auto rate = [this](std::int64_t step) { return learning_rate(step); };
  double before = now_s();
  bool stops = false;
  std::int64_t left = most;
  std::int64_t queued_steps = steps_in_process_;
  while (true) {
    while (!stops) {
      const auto at_once = std::min<std::int64_t>(left, RecordedSteps::kMaxSteps);
      if (looks_at(queued_steps + 1, Execution::recorded)) {
        recorded_->watch(&layer_costs_->forward(), &layer_costs_->backward());
      }
      const int queued = recorded_->queue(rate, static_cast<int>(at_once));
      queued_steps += queued;
      if (queued == 0) break;
      left -= queued;
    }
    if (recorded_->in_flight() == 0) return !stops;
    const RecordedSteps::Launch launch = recorded_->collect();
    const double now = now_s();
    if (launch.watched) layer_costs_->add(recorded_->plan());
    for (int i = 0; i < launch.steps; ++i) {
      const std::int64_t skipped = state_.loss_scale.skipped;
      if (setup_.scale_loss) loss_scale_.restore(launch.outcomes[i].scale);
      const StepResult result{.loss = static_cast<double>(launch.outcomes[i].loss),
                              .images = launch.images_per_step,
                              .correct = launch.outcomes[i].correct,
                              .whole_s = launch.seconds / launch.steps,
                              .forward_bytes = memory.kept_bytes,
                              .backward_peak_bytes = peak,
                              .workspace_peak_bytes = memory.workspace_bytes,
                              .skipped = loss_scale_.state().skipped > skipped};
      finish_step(alarm, result, 0, learning_rate(state_.step), (now - before) / launch.steps,
                  /*by_device=*/true);
    }
    before = now;
    if (!stops) stop_signal_ = agreed_stop(setup_.share.group);
    stops = stop_signal_ != 0;
  }
}

// `seconds` is the wall time since the previous step. `by_device` is true for a recorded step: it
// needs no work for masks or quantisers after it. For any other step, this function does that work.
void Trainer::finish_step(LossAlarm& alarm, const StepResult& result, double waited_s, double lr,
                          double seconds, bool by_device) {
  const Alarm rings = alarm.observe(result.loss);
  if (rings == Alarm::kNotFinite) {
    fail(ErrorKind::kRun, "train",
         cat("expected a finite loss, got ", result.loss, " at step ", state_.step + 1, ", epoch ",
             state_.epoch + 1, ", learning rate ", lr, kept_checkpoint(),
             "; try a smaller optim.lr, a warm-up or optim.clip_grad_norm"));
  }
  if (rings == Alarm::kNotLearning) {
    const std::string warning =
        cat("warning: the loss stays at ln(", setup_.train->dataset().classes,
            "), the loss of guessing, for ", LossAlarm::kWindow, " steps up to step ",
            state_.step + 1, " (learning rate ", lr,
            "); try another optim.lr, and check labels, normalisation and the last layer");
    warn(warning);
  }
  if (!by_device) {
    const std::int64_t rank = setup_.share.rank(), size = setup_.share.size();
    own_weight_ = static_cast<double>(first_of_part(result.images, rank + 1, size) -
                                      first_of_part(result.images, rank, size)) /
                  static_cast<double>(std::max<std::int64_t>(1, result.images));
    const bool masks_changed = pruning_ && pruning_->after_step(state_.step + 1);
    if (quantization_ && masks_changed) quantization_->count_kept();
    if (masks_changed && setup_.form == Form::sparse) steps_reported_ = Execution::nothing;
    if (quantization_) quantization_->after_step(state_.step + 1, state_.epoch + 1);
    if (setup_.share.group != nullptr && setup_.quant && setup_.quant->calibrates(state_.step)) {
      average_quantizers(*setup_.share.group, *setup_.model);
    }
  }
  state_.alarm = alarm.state();
  if (result.skipped) {
    folder_.log(cat("step ", state_.step + 1,
                    ": no update, a scaled gradient was not finite; the loss scale is ",
                    loss_scale_.scale(), " now"));
  }
  state_.loss_scale = loss_scale_.state();
  after_step(result, waited_s, lr);
  state_.epoch_s += seconds;
  progress_.step(
      {.epoch = state_.epoch,
       .epochs = setup_.epochs,
       .batch = state_.batch,
       .batches = setup_.train->batches_per_epoch(),
       .loss = state_.epoch_loss.loss(),
       .images_per_s = state_.epoch_s > 0
                           ? static_cast<double>(state_.epoch_loss.images) / state_.epoch_s
                           : 0});
  const double now = now_s();
  if (now - last_heartbeat_s_ > kHeartbeatSeconds) {
    last_heartbeat_s_ = now;
    folder_.set_status({.state = "RUNNING", .epoch = state_.epoch, .step = state_.step});
  }
}

void Trainer::before_step() {
  setup_.model->set_step(state_.step);
  const bool masks_changed = pruning_ && pruning_->before_step(state_.step);
  if (!quantization_) return;
  if (masks_changed) quantization_->count_kept();
  const bool ends_epoch = state_.batch + 1 == setup_.train->batches_per_epoch();
  if (!quantization_->before_step(state_.step, ends_epoch)) return;
  steps_reported_ = Execution::nothing;
  logged_steps_.clear();
  // Quantised steps take longer than steps before quantisation, so the averages contain only
  // quantised steps.
  state_.run_steps = state_.warmup_steps = {};
  steps_in_process_ = 0;
}

void Trainer::after_step(const StepResult& step, double waited_s, double lr) {
  ++state_.step;
  ++state_.batch;
  state_.epoch_loss.add(step);
  state_.window_loss.add(step);
  state_.epoch_steps.add(step, waited_s);
  const bool warm = ++steps_in_process_ > kTimingWarmupSteps;
  (warm ? state_.run_steps : state_.warmup_steps).add(step, waited_s);
  if (state_.step % setup_.log_every == 0) write_train_row(lr);
}

}  // namespace convscope
