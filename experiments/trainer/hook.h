// SPDX-License-Identifier: Apache-2.0
// hook.h: the work around the steps of a training, such as checkpoints, evaluations and pruning.
// The loop (loop.cpp) calls all hooks in the order of the list below.
//
//   on_start
//   for each epoch:  before_epoch, for each step: before_step after_step, evaluate, after_epoch
//   on_stop
#pragma once

#include <memory>
#include <string>

#include "experiments/run_folder/run_folder.h"
#include "experiments/trainer/train_step.h"

namespace convscope {

// A finished step.
struct Step {
  StepResult result;
  double lr = 0;
  double waited_s = 0;    // for the loader
  double seconds = 0;     // wall time since the previous step
  bool recorded = false;  // ran on the device without the host (recorded_steps.h)
};

struct Training;

class Hook {
 public:
  explicit Hook(Training& run) : run_(run) {}
  virtual ~Hook() = default;

  // Runs once in a process, before the first step.
  virtual void on_start() {}
  // Runs after another network has taken the place of setup.model.
  virtual void on_new_network() {}
  virtual void before_epoch() {}
  // Returns whether this hook has work before or after step number `step`, so that the device
  // cannot run the step without the host.
  virtual bool needs_host(std::int64_t /*step*/, bool /*ends_epoch*/) const { return false; }
  // Runs before step number state.step, unless the step is recorded.
  virtual void before_step() {}
  // Runs after each step; state.step already counts it.
  virtual void after_step(const Step&) {}
  // Runs after the last step of an epoch, which state.epoch does not count yet. Returns false when
  // a signal has stopped the evaluation; it is repeated when the run resumes.
  virtual bool evaluate() { return true; }
  // Runs after evaluate(); state.epoch already counts the epoch.
  virtual void after_epoch() {}
  // Stores in the state what a checkpoint needs of this hook.
  virtual void before_checkpoint() {}
  // Runs at the end. status.state is DONE, INTERRUPTED or FAILED.
  virtual void on_stop(const RunStatus&) {}

 protected:
  Training& run_;
};

using HookPointer = std::unique_ptr<Hook>;

// Logs a loss that does not fall, and updates that were skipped (alarms.cpp).
HookPointer alarm_hook(Training& run);
// Removes pruned filters once the masks are final (compression/removal.cpp).
HookPointer removal_hook(Training& run);
// Updates the masks; sparsity.csv (compression/pruning.cpp).
HookPointer pruning_hook(Training& run);
// Starts and calibrates the quantisers; quant.csv (compression/quantization.cpp).
HookPointer quantization_hook(Training& run);
// Keeps the networks of several processes equal (ranks/shared_training.cpp).
HookPointer rank_hook(Training& run);
// Evaluates the held-out images; best epoch, early stopping (evaluation/evaluation_hook.cpp).
HookPointer evaluation_hook(Training& run);
// Writes metrics.jsonl, epochs.csv, the event file, the table on the terminal (hooks/metrics.cpp).
HookPointer metrics_hook(Training& run);
// Writes ckpt/last.safetensors and ckpt/best.safetensors (hooks/checkpoints.cpp).
HookPointer checkpoint_hook(Training& run);
// Writes summary.json, layers.csv, model files, report.html; checks `expect:` (hooks/results.cpp).
HookPointer result_hook(Training& run);
// Moves the bar on the terminal; writes status.json and the end of the log (hooks/status.cpp).
HookPointer status_hook(Training& run);

// Continues from the newest undamaged checkpoint of the run folder. A damaged checkpoint is
// reported, and the steps since the previous checkpoint are repeated. Returns the path of the
// checkpoint, or "" if the run starts from the beginning.
std::string resume_from_checkpoint(Training& run);

}  // namespace convscope
