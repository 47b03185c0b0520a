// SPDX-License-Identifier: Apache-2.0
// trainer.h: trains a network and writes all files of the run folder. loop.cpp is the training
// loop; hook.h lists everything that happens around the steps.
//
//   TrainingSetup setup = setup_training(config);
//   RunFolder folder = RunFolder::create("runs", config.name, seed);
//   Trainer trainer(setup, folder, progress);
//   int code = trainer.run();     // 0, or 130/143 after a signal; throws Error when the run fails
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "experiments/run_folder/machine_load.h"
#include "experiments/run_folder/run_folder.h"
#include "experiments/run_folder/tensorboard.h"
#include "experiments/trainer/evaluation/evaluator.h"
#include "experiments/trainer/hook.h"
#include "experiments/trainer/progress.h"
#include "experiments/trainer/setup.h"
#include "experiments/trainer/steps.h"
#include "experiments/trainer/training_state.h"

namespace convscope {

// Wall time of a run, over all its processes.
class RunClock {
 public:
  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  void start(double seconds_before) { start_s_ = now() - seconds_before; }
  double seconds() const { return now() - start_s_; }
  void leave_out(double seconds) { start_s_ += seconds; }

 private:
  double start_s_ = 0;
};

// What the training loop and its hooks share.
struct Training {
  TrainingSetup& setup;
  RunFolder& folder;
  Progress& progress;
  TrainingState state = {};
  RunClock clock = {};
  LoadSpan load = {};  // since the training began
  std::vector<std::unique_ptr<Hook>> hooks = {};
  std::unique_ptr<StepRunner> runner = nullptr;  // null before the first epoch
  std::unique_ptr<TensorboardLog> events = {};   // null when off
  std::optional<Evaluator> val = {}, test = {};  // none without such images
  std::optional<InferenceTime> inference = {};   // of the final network
  std::optional<double> weight_bytes = {};       // of the final network
  std::int64_t steps_in_process = 0;
  std::int64_t mask_changes = 0;     // updates of the pruning masks in this process
  int stop_signal = 0;               // why training stops, equal in all processes
  StepTotals last_epoch_steps = {};  // of the last finished epoch
  double last_epoch_s = 0;           // its wall time, without evaluation

  double learning_rate(std::int64_t step) const;
  // Returns whether another epoch follows.
  bool goes_on() const;
  bool stops_early() const;
  // Returns how many of the epoch's next steps can run without the host.
  std::int64_t steps_without_host() const;
  void count(const Step& step);
  void count_epoch();
  // Restarts the averages over steps, because the steps from now on cost another time.
  void restart_averages();
  void add_event(std::initializer_list<Scalar> scalars) const {
    if (events) events->add(state.step, scalars);
  }
  // Writes a sentence to the log and to the terminal.
  void say(const std::string& sentence) const;
  // Returns a phrase for the reason of a failure, or "".
  std::string kept_checkpoint() const;
  CONVSCOPE_API RunSummary summary() const;
};

class CONVSCOPE_API Trainer : private Training {
 public:
  Trainer(TrainingSetup& setup, RunFolder& folder, Progress& progress);
  ~Trainer();

  // Continues from ckpt/last.safetensors, or from ckpt/previous.safetensors if last.safetensors is
  // damaged. A run without checkpoints starts from the beginning.
  void resume();
  // Runs until the last epoch, a signal or a failure. Returns the exit code 0, 130 or 143. A failed
  // run writes the reason to status.json and throws.
  int run();

  // Returns the path of the checkpoint that resume() has loaded, or "".
  const std::string& resumed_from() const { return resumed_from_; }
  using Training::state;
  using Training::summary;

 private:
  int train();
  bool train_epoch();  // false: a signal came
  bool evaluate();     // false: a signal came
  void finish(const Step& step);
  int stop(const RunStatus& status);

  std::string resumed_from_;
};

}  // namespace convscope
