// SPDX-License-Identifier: Apache-2.0
// checkpoints.cpp: writes the checkpoints of a run, and resumes from them.
#include <filesystem>
#include <optional>

#include "experiments/run_folder/files/own_file.h"
#include "experiments/trainer/checkpoint.h"
#include "experiments/trainer/choices/kept_choices.h"
#include "experiments/trainer/trainer.h"
#include "framework/distributed/process_group.h"
#include "framework/io/bytes.h"
#include "optim/slow_weights.h"

namespace convscope {
namespace {

constexpr const char* kPreviousCheckpoint = "ckpt/previous.safetensors";

// Gives the file `last` the second name `previous`. When a new file replaces `last`, the old file
// keeps the name `previous`. File systems without hard links have no second checkpoint.
void keep_as(const std::string& previous, const std::string& last) {
  std::error_code ignored;
  if (!std::filesystem::exists(last, ignored)) return;
  std::filesystem::remove(previous, ignored);
  std::filesystem::create_hard_link(last, previous, ignored);
}

class Checkpoints final : public Hook {
 public:
  explicit Checkpoints(Training& run) : Hook(run), choices_(run.setup.device) {}

  void on_start() override { choices_.write(run_.folder.path()); }

  void after_epoch() override {
    const TrainingState& state = run_.state;
    const std::int64_t every = run_.setup.checkpoint_every;
    if (state.best_epoch == state.epoch && run_.setup.keep_best) {
      const AveragedWeights averages(run_.setup.averaged());
      save("ckpt/best.safetensors", nullptr);
    }
    if ((every > 0 && state.epoch % every == 0) || !run_.goes_on()) save_last();
  }

  void on_stop(const RunStatus& status) override {
    if (status.state == "INTERRUPTED" && run_.stop_signal != 0) save_last();
  }

 private:
  void save_last() { save(kLastCheckpoint, run_.setup.optimizer.get()); }

  void save(const char* name, Optimizer* optimizer) {
    if (!is_first_process()) return;  // all processes hold the same
    const std::string wrong = not_finite(*run_.setup.model, optimizer);
    if (!wrong.empty()) {
      fail(ErrorKind::kRun, "train",
           cat("expected finite numbers in all tensors of a checkpoint, got ", wrong,
               " after step ", run_.state.step, run_.kept_checkpoint(),
               "; try a smaller optim.lr, a warm-up or optim.clip_grad_norm"));
    }
    for (const auto& hook : run_.hooks) hook->before_checkpoint();
    run_.state.run_s = run_.clock.seconds();
    run_.folder.check_owner();
    choices_.write(run_.folder.path());
    if (optimizer != nullptr)
      keep_as(run_.folder.file(kPreviousCheckpoint), run_.folder.file(name));
    save_checkpoint(own_path(run_.folder.path(), name), *run_.setup.model, optimizer, run_.state,
                    run_.setup.config_yaml);
  }

  KeptChoices choices_;
};

// `convscope note` may have changed tags and note since the run began.
void take_over_words(Training& run) {
  const std::optional<std::string> text = text_if_there(run.folder.file("summary.json"));
  if (!text) return;
  try {
    const RunSummary before = parse_summary(*text);
    run.setup.facts.tags = before.tags;
    run.setup.facts.note = before.note;
  } catch (const Error&) {  // the summary is rewritten anyway
  }
}

void resume_from(Training& run, const std::string& path) {
  TrainingSetup& setup = run.setup;
  if (setup.remove_when_final) rebuild_removed(setup, checkpoint_config(path));
  std::string note;
  run.state = load_checkpoint(path, *setup.model, setup.optimizer.get(), &note);
  const std::int64_t batches = setup.train->batches_per_epoch();
  const TrainingState& s = run.state;
  const bool fits = s.epoch >= 0 && s.epoch <= setup.epochs && s.batch >= 0 && s.batch <= batches &&
                    s.step == s.epoch * batches + s.batch && s.metrics_bytes >= 0 &&
                    s.epochs_bytes >= 0 && s.run_steps.steps >= 0 && s.run_steps.steps <= s.step &&
                    s.best_epoch >= 0 && s.best_epoch <= s.epoch && s.best_accuracy <= 100;
  if (!fits) {
    fail(ErrorKind::kIo, "checkpoint",
         cat("expected the progress of a run of ", setup.epochs, " epochs of ", batches,
             " batches in ", path, ", got epoch ", s.epoch, ", batch ", s.batch, ", step ", s.step,
             ", best epoch ", s.best_epoch));
  }
  if (!note.empty()) run.folder.log(cat("note: ", note));
}

}  // namespace

HookPointer checkpoint_hook(Training& run) { return std::make_unique<Checkpoints>(run); }

std::string resume_from_checkpoint(Training& run) {
  take_over_words(run);
  std::string damaged;
  for (const char* const name : {kLastCheckpoint, kPreviousCheckpoint}) {
    const std::string path = run.folder.file(name);
    if (!std::filesystem::exists(path)) continue;
    try {
      resume_from(run, path);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kIo) throw;
      damaged += cat(damaged.empty() ? "" : "; ", error.what());
      continue;
    }
    const TrainingState& state = run.state;
    if (!damaged.empty()) {
      run.say(cat("warning: a checkpoint is damaged (", damaged, "); going on from ", name,
                  ", after step ", state.step));
    }
    run.folder.log(
        cat("resume: epoch ", state.epoch + 1, ", batch ", state.batch, ", step ", state.step));
    return path;
  }
  if (!damaged.empty()) {
    fail(ErrorKind::kIo, "resume",
         cat("expected a checkpoint that can be read, got none: ", damaged,
             "; `convscope run` with only the config starts again"));
  }
  run.folder.log("resume: there is no checkpoint yet, starting from the beginning");
  if (!run.setup.start_from.empty()) load_start_weights(run.setup.start_from, *run.setup.model);
  return "";
}

}  // namespace convscope
