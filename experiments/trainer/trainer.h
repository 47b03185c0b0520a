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
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "experiments/run_folder/layer_costs.h"
#include "experiments/run_folder/machine_load.h"
#include "experiments/run_folder/run_folder.h"
#include "experiments/run_folder/step_kernels.h"
#include "experiments/run_folder/tensorboard.h"
#include "experiments/trainer/evaluation/evaluator.h"
#include "experiments/trainer/hook.h"
#include "experiments/trainer/progress.h"
#include "experiments/trainer/recorded_steps.h"
#include "experiments/trainer/setup.h"
#include "experiments/trainer/train_step.h"
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

// Runs the steps of a training: one by one, or several recorded ones in a launch. Writes
// layers.csv, which names the kernels of a step and the times of the layers.
class StepRunner {
 public:
  explicit StepRunner(Training& run);

  // Returns how many of the epoch's next steps the device can run without the host.
  std::int64_t recordable();
  // Runs the next `most` steps on the device, or fewer after a stop signal. `finish` receives the
  // result of each.
  void run_recorded(std::int64_t most, const std::function<void(const Step&)>& finish);

  // Fetches the next batch. Returns false when the loader has no more. Sets the step's rate and
  // waiting time.
  bool load(Step& step);
  // Runs one step with this batch.
  void run(Step& step);

  // Writes layers.csv again after the next step, which has other kernels. `also_log`: writes the
  // log's line about the steps again, too.
  void expect_other_kernels(bool also_log);
  // Writes layers.csv with the times of the layers so far, and the kernels of an inference, which
  // may be null.
  void write_layers(const StepKernels* inference);
  // Returns whether a kernel of the reported steps has `word` in its name.
  bool any_kernel(const std::string& word) const { return kernels_ && kernels_->any(word); }

 private:
  // How steps run, from the slowest to the fastest.
  enum class Execution { nothing, dynamic, planned, recorded };
  bool record();
  void report(const StepPlan* plan, Execution execution);
  void write(const std::string& csv);
  bool looks_at(std::int64_t step, Execution execution);

  Training& run_;
  TrainStep step_;
  std::unique_ptr<GradientExchange> exchange_;  // null when batches are not shared
  LossScale loss_scale_;                        // used with setup.scale_loss
  Execution reported_ = Execution::nothing;
  Execution single_ = Execution::nothing;  // kind of the last step that the host started
  std::set<std::string> logged_;           // all kinds of steps so far
  std::unique_ptr<StepKernels> kernels_;   // of the reported steps; null before the first one
  std::unique_ptr<LayerCosts> costs_;      // of these steps
  bool may_record_ = false;                // the device may run steps by itself
  std::unique_ptr<RecordedSteps> recorded_;
  Batch batch_;
  bool loads_ = false;  // the loader continues with the next batch of the epoch
  double last_s_ = 0;   // clock at the end of the last step
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
  ClassCounts test_classes = {};                 // of the last evaluation of the test images
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
