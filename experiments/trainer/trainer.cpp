// SPDX-License-Identifier: Apache-2.0
// trainer.cpp: epochs, checkpoints and alarms. trainer_files.cpp writes the files.
#include "experiments/trainer/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <optional>
#include <utility>

#include "experiments/report/html/run_page.h"
#include "experiments/run_folder/check_lines.h"
#include "experiments/run_folder/files/kept_rows.h"
#include "experiments/run_folder/files/own_file.h"
#include "experiments/run_folder/layer_table.h"
#include "experiments/trainer/checkpoint.h"
#include "experiments/trainer/compression/removal.h"
#include "experiments/trainer/ranks/lost_note.h"
#include "experiments/trainer/ranks/shared_training.h"
#include "experiments/trainer/signals.h"
#include "framework/error_phase.h"
#include "framework/io/bytes.h"
#include "framework/memory/memory.h"

namespace convscope {
namespace {

constexpr const char* kLastCheckpoint = "ckpt/last.safetensors";
constexpr const char* kPreviousCheckpoint = "ckpt/previous.safetensors";

// Gives the file `last` the second name `previous`. When a new file replaces `last`, the old file
// keeps the name `previous`. File systems without hard links have no second checkpoint.
void keep_as(const std::string& previous, const std::string& last) {
  std::error_code ignored;
  if (!std::filesystem::exists(last, ignored)) return;
  std::filesystem::remove(previous, ignored);
  std::filesystem::create_hard_link(last, previous, ignored);
}

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Trainer::Trainer(TrainingSetup& setup, RunFolder& folder, Progress& progress)
    : setup_(setup), folder_(folder), progress_(progress), choices_(setup.device) {}

Trainer::~Trainer() = default;

double Trainer::run_seconds() const { return seconds_before_ + now_s() - start_s_; }

double Trainer::learning_rate(std::int64_t step) const {
  const std::int64_t per_epoch = setup_.train->batches_per_epoch();
  return setup_.learning_rate(
      {.step = step, .total_steps = per_epoch * setup_.epochs, .steps_per_epoch = per_epoch});
}

// Resumes from the newest undamaged checkpoint. A damaged checkpoint is reported, and the steps
// since the previous checkpoint are repeated.
void Trainer::resume() {
  take_over_words();
  std::string damaged;
  for (const char* const name : {kLastCheckpoint, kPreviousCheckpoint}) {
    const std::string path = folder_.file(name);
    if (!std::filesystem::exists(path)) continue;
    try {
      resume_from(path);
      resumed_from_ = path;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kIo) throw;
      damaged += cat(damaged.empty() ? "" : "; ", error.what());
      continue;
    }
    if (!damaged.empty()) {
      warn(cat("warning: a checkpoint is damaged (", damaged, "); going on from ", name,
               ", after step ", state_.step));
    }
    folder_.log(
        cat("resume: epoch ", state_.epoch + 1, ", batch ", state_.batch, ", step ", state_.step));
    return;
  }
  if (!damaged.empty()) {
    fail(ErrorKind::kIo, "resume",
         cat("expected a checkpoint that can be read, got none: ", damaged,
             "; `convscope run` with only the config starts again"));
  }
  folder_.log("resume: there is no checkpoint yet, starting from the beginning");
  if (!setup_.start_from.empty()) load_start_weights(setup_.start_from, *setup_.model);
}

void Trainer::resume_from(const std::string& path) {
  if (setup_.remove_when_final) rebuild_removed(setup_, checkpoint_config(path));
  std::string note;
  state_ = load_checkpoint(path, *setup_.model, setup_.optimizer.get(), &note);
  const std::int64_t batches = setup_.train->batches_per_epoch();
  const TrainingState& s = state_;
  const bool fits = s.epoch >= 0 && s.epoch <= setup_.epochs && s.batch >= 0 &&
                    s.batch <= batches && s.step == s.epoch * batches + s.batch &&
                    s.metrics_bytes >= 0 && s.epochs_bytes >= 0 && s.run_steps.steps >= 0 &&
                    s.run_steps.steps <= s.step && s.best_epoch >= 0 && s.best_epoch <= s.epoch &&
                    s.best_accuracy <= 100;
  if (!fits) {
    fail(ErrorKind::kIo, "checkpoint",
         cat("expected the progress of a run of ", setup_.epochs, " epochs of ", batches,
             " batches in ", path, ", got epoch ", s.epoch, ", batch ", s.batch, ", step ", s.step,
             ", best epoch ", s.best_epoch));
  }
  if (!note.empty()) folder_.log(cat("note: ", note));
}

void Trainer::warn(const std::string& sentence) {
  folder_.log(sentence);
  progress_.line(sentence);
}

// `convscope note` may have changed tags and note since the run began.
void Trainer::take_over_words() {
  const std::optional<std::string> text = text_if_there(folder_.file("summary.json"));
  if (!text) return;
  try {
    const RunSummary before = parse_summary(*text);
    setup_.facts.tags = before.tags;
    setup_.facts.note = before.note;
  } catch (const Error&) {  // the summary is rewritten anyway
  }
}

int Trainer::run() {
  const StopSignals signals;
  start_s_ = last_heartbeat_s_ = now_s();
  load_ = LoadSpan();
  seconds_before_ = results_s_ = state_.run_s;
  const LostNote lost_note(setup_.share.group, folder_);
  forget_check_results();
  try {
    return in_phase(ErrorKind::kRun, [&] { return run_epochs(); });
  } catch (const std::exception& error) {
    const auto* ours = dynamic_cast<const Error*>(&error);
    progress_.clear();
    try {  // the disk may be full: then the first failure is reported
      folder_.log(cat("failed: ", error.what()));
      if (!unwritten_summary_.empty()) folder_.write("summary.json", unwritten_summary_);
      folder_.set_status({.state = "FAILED",
                          .reason = error.what(),
                          .exit_code = ours != nullptr ? exit_code(ours->kind()) : 1,
                          .epoch = state_.epoch,
                          .step = state_.step});
      write_report();
    } catch (const Error&) {
    }
    throw;
  }
}

int Trainer::run_epochs() {
  const auto reopened = [this](const char* name, std::int64_t counted, const auto& place_of) {
    const KeptRows kept = kept_rows(folder_.file(name), counted, place_of);
    if (!kept.as_counted && is_first_process()) {
      warn(cat("warning: ", name, " was changed since the checkpoint, which counts ", counted,
               " bytes of it; its rows up to step ", state_.step, " are kept, ", kept.bytes,
               " bytes"));
    }
    auto file = std::make_unique<AppendFile>(folder_.file(name), kept.bytes);
    if (kept.lacks_line_end) file->append("\n");
    return file;
  };
  choices_.write(folder_.path());
  folder_.set_status({.state = "RUNNING", .epoch = state_.epoch, .step = state_.step});
  metrics_ = reopened("metrics.jsonl", state_.metrics_bytes, [this](std::string_view row) {
    return place_of_metrics_row(row, state_.epoch, state_.step);
  });
  epochs_ = reopened("epochs.csv", state_.epochs_bytes, [this](std::string_view row) {
    return place_of_epoch_row(row, state_.epoch);
  });
  if (setup_.tensorboard) {
    tensorboard_ = std::make_unique<TensorboardLog>(folder_.file(kTensorboardFile), state_.step);
  }
  // Writes summary.json already now, so that readers find it before the first epoch has ended.
  if (state_.step == 0) folder_.write("summary.json", to_json_text(summary()));
  if (setup_.pruner && setup_.share.group != nullptr) {
    setup_.pruner->use_gradients_of_all([this](const Tensor& gradient) {
      ProcessGroup& group = *setup_.share.group;
      group.wait(group.queue_sum(gradient.data<float>(), gradient.numel(),
                                 static_cast<float>(own_weight_), SumOrder::any));
    });
  }
  if (setup_.pruner) {
    pruning_ = std::make_unique<Pruning>(*setup_.pruner, folder_, progress_, state_.step);
  }
  prepare_quantization();
  progress_.start(state_.step, setup_.train->batches_per_epoch() * setup_.epochs);
  setup_.model->train();

  const std::int64_t last =
      setup_.epochs_now > 0 ? std::min(setup_.epochs_now, setup_.epochs) : setup_.epochs;
  while (state_.epoch < last && !stops_early()) {
    remove_when_due();
    if (!train_epoch() || !evaluate_epoch()) {
      save(kLastCheckpoint, true);
      const int signal = stop_signal_;
      return stop(128 + signal, "INTERRUPTED", cat("signal ", signal, " after step ", state_.step));
    }
    finish_epoch();
  }
  if (stops_early() && state_.epoch < setup_.epochs) {
    const std::string text =
        cat("stopped early after epoch ", state_.epoch, " of ", setup_.epochs, ": ",
            setup_.early_stop.metric, " was best after epoch ", state_.waits_since_epoch);
    folder_.log(text);
    progress_.line(text);
  } else if (state_.epoch < setup_.epochs) {
    return stop(0, "INTERRUPTED", cat("the limit of ", last, " epochs was reached"));
  }
  write_results();
  check_expectations();
  return stop(0, "DONE", "");
}

void Trainer::prepare_quantization() {
  if (!setup_.quant) return;
  quantization_ =
      std::make_unique<Quantization>(*setup_.model, *setup_.quant, folder_, state_.step);
}

void Trainer::remove_when_due() {
  if (!setup_.remove_when_final || !setup_.pruner || !setup_.pruner->finished(state_.step)) return;
  pruning_.reset();
  quantization_.reset();
  recorded_.reset();
  step_.reset();
  exchange_.reset();
  step_kernels_.reset();
  layer_costs_.reset();
  may_record_ = false;
  val_.reset();
  test_.reset();
  const std::string text = remove_pruned(setup_);
  setup_.model->train();
  prepare_quantization();
  folder_.write("layers.csv", setup_.layers_csv);
  folder_.log(text);
  progress_.line(text);
  // The network is smaller from now on. The means are started again, so that they do not mix times
  // of the old and the smaller network.
  state_.run_steps = state_.warmup_steps = {};
  steps_in_process_ = 0;
}

bool Trainer::evaluate_epoch() {
  state_.epoch_allocations =
      memory_stats(setup_.device).system_allocations - allocations_at_epoch_start_;
  const bool due = (state_.epoch + 1) % setup_.eval_every == 0 || state_.epoch + 1 == setup_.epochs;
  if (!due) return true;
  const auto stopped = [] { return stop_signal() != 0; };
  ProcessGroup* const group = setup_.share.group;
  const auto measure = [&](Loader* loader, std::unique_ptr<Evaluator>& evaluator,
                           std::int64_t whole_images, Evaluation& into) {
    if (loader == nullptr) return true;
    if (!evaluator) {
      evaluator = std::make_unique<Evaluator>(*setup_.model, *loader, setup_.device, setup_.plan);
    }
    Evaluation result = evaluator->run(stopped);
    if (group != nullptr) {
      result = combined_evaluation(*group, result, evaluator->batch_loss_sums(), whole_images,
                                   setup_.train->options().batch_size);
    }
    if (!result.complete) {
      stop_signal_ = agreed_stop(group);
      return false;
    }
    into = result;
    return true;
  };
  if (!measure(setup_.val.get(), val_, setup_.val_images, state_.val) ||
      !measure(setup_.test.get(), test_, setup_.test_images, state_.test)) {
    return false;
  }
  for (const Evaluation* result : {&state_.val, &state_.test}) {
    if (std::isfinite(result->loss)) continue;
    fail(ErrorKind::kRun, "train",
         cat("expected a finite loss on the held-out images, got ", result->loss, " after epoch ",
             state_.epoch + 1, ", step ", state_.step, ", learning rate ",
             learning_rate(state_.step - 1), kept_checkpoint()));
  }
  if (setup_.val) write_eval_row("val", state_.val);
  if (setup_.test) write_eval_row("test", state_.test);
  return true;
}

void Trainer::finish_epoch() {
  const bool evaluated =
      (state_.epoch + 1) % setup_.eval_every == 0 || state_.epoch + 1 == setup_.epochs;
  if (setup_.share.group != nullptr) check_same_network(*setup_.share.group, *setup_.model);
  state_.last_epoch = state_.epoch_loss;
  ++state_.epoch;
  write_epoch_row(evaluated);
  const Evaluation& deciding = setup_.val ? state_.val : state_.test;
  // A network that is not yet fully pruned or quantised cannot be the best one.
  const bool is_final = (!setup_.pruner || setup_.pruner->finished(state_.step)) &&
                        (!setup_.quant || setup_.quant->has_begun(state_.step));
  const bool better =
      evaluated && is_final && deciding.images > 0 && deciding.accuracy > state_.best_accuracy;
  if (better) {
    state_.best_accuracy = deciding.accuracy;
    state_.best_epoch = state_.epoch;
  }
  if (evaluated && is_final) count_for_early_stop();
  state_.batch = 0;
  state_.epoch_loss = {};
  state_.epoch_steps = {};
  state_.epoch_s = 0;
  const bool due = setup_.checkpoint_every > 0 && state_.epoch % setup_.checkpoint_every == 0;
  const bool stops_here =
      state_.epoch == setup_.epochs || state_.epoch == setup_.epochs_now || stops_early();
  if (better && setup_.keep_best) save("ckpt/best.safetensors", false);
  if (due || stops_here) save(kLastCheckpoint, true);
  if (!stops_here && results_are_due()) {
    write_results();
  } else {
    unwritten_summary_ = to_json_text(summary());
  }
  folder_.set_status({.state = "RUNNING", .epoch = state_.epoch, .step = state_.step});
}

void Trainer::count_for_early_stop() {
  if (!setup_.early_stop.patience || !setup_.val) return;
  const bool by_loss = setup_.early_stop.metric == "val_loss";
  const double now = by_loss ? -state_.val.loss : state_.val.accuracy;
  if (state_.waits_since_epoch == 0 || now > state_.waits_for + setup_.early_stop.min_delta) {
    state_.waits_for = now;
    state_.waits_since_epoch = state_.epoch;
    state_.waited_evaluations = 0;
  } else {
    ++state_.waited_evaluations;
  }
}

bool Trainer::stops_early() const {
  return setup_.early_stop.patience && state_.waited_evaluations >= *setup_.early_stop.patience;
}

void Trainer::save(const char* name, bool with_optimizer) {
  if (!is_first_process()) return;  // all processes hold the same
  Optimizer* const optimizer = with_optimizer ? setup_.optimizer.get() : nullptr;
  const std::string wrong = not_finite(*setup_.model, optimizer);
  if (!wrong.empty()) {
    fail(ErrorKind::kRun, "train",
         cat("expected finite numbers in all tensors of a checkpoint, got ", wrong, " after step ",
             state_.step, kept_checkpoint(),
             "; try a smaller optim.lr, a warm-up or optim.clip_grad_norm"));
  }
  // Files whose lengths the checkpoint stores must reach the disk before the checkpoint.
  metrics_->flush_to_disk();
  epochs_->flush_to_disk();
  state_.metrics_bytes = metrics_->size_bytes();
  state_.epochs_bytes = epochs_->size_bytes();
  state_.run_s = run_seconds();
  folder_.check_owner();
  choices_.write(folder_.path());
  if (with_optimizer) keep_as(folder_.file(kPreviousCheckpoint), folder_.file(name));
  save_checkpoint(own_path(folder_.path(), name), *setup_.model, optimizer, state_,
                  setup_.config_yaml);
}

std::string Trainer::kept_checkpoint() const {
  return std::filesystem::exists(folder_.file(kLastCheckpoint))
             ? "; the last good checkpoint is kept"
             : "";
}

int Trainer::stop(int exit_code, const std::string& state, const std::string& reason) {
  progress_.clear();
  state_.run_s = run_seconds();
  write_results();
  for (const std::string& line : check_lines()) {
    folder_.log(line);
    progress_.line(line);
  }
  folder_.log(cat(state == "DONE" ? "done" : "stopped", reason.empty() ? "" : ": ", reason));
  RunStatus status = {.state = state,
                      .reason = reason,
                      .exit_code = exit_code,
                      .epoch = state_.epoch,
                      .step = state_.step};
  folder_.set_status(status);
  // Writes the page again, because it now includes the end of the run.
  const std::string problem = is_first_process() ? write_run_page(folder_) : "";
  if (!problem.empty()) {
    progress_.line(cat("warning: ", problem));
    status.reason += cat(reason.empty() ? "" : "; ", problem);
    try {  // the earlier status stays true
      folder_.log(cat("warning: ", problem));
      folder_.set_status(status);
    } catch (const Error&) {
    }
  }
  return exit_code;
}

void Trainer::check_expectations() const {
  const ExpectConfig& expect = setup_.expect;
  if (expect.test_acc_min && !(state_.test.accuracy >= *expect.test_acc_min)) {
    fail(ErrorKind::kRun, "expect",
         cat("expected a test accuracy of at least ", *expect.test_acc_min, " % after epoch ",
             state_.epoch, ", because the config says expect.test_acc_min, got ",
             state_.test.accuracy,
             " %; expect.test_acc_min=VALUE changes this limit, expect=null removes it"));
  }
  if (expect.test_loss_max && !(state_.test.loss <= *expect.test_loss_max)) {
    fail(ErrorKind::kRun, "expect",
         cat("expected a test loss of at most ", *expect.test_loss_max, " after epoch ",
             state_.epoch, ", because the config says expect.test_loss_max, got ", state_.test.loss,
             "; expect.test_loss_max=VALUE changes this limit, expect=null removes it"));
  }
}

}  // namespace convscope
