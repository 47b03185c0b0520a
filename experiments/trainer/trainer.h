// SPDX-License-Identifier: Apache-2.0
// trainer.h: the training loop, and all its files in the run folder.
//
//   TrainingSetup setup = setup_training(config);
//   RunFolder folder = RunFolder::create("runs", config.name, seed);
//   Trainer trainer(setup, folder, progress);
//   int code = trainer.run();     // 0, or 130/143 after a signal; throws Error when the run fails
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "datasets/loader.h"
#include "experiments/config/experiment_config.h"
#include "experiments/run_folder/append_file.h"
#include "experiments/run_folder/layer_costs.h"
#include "experiments/run_folder/layer_table.h"
#include "experiments/run_folder/machine_load.h"
#include "experiments/run_folder/run_folder.h"
#include "experiments/run_folder/run_summary.h"
#include "experiments/run_folder/tensorboard.h"
#include "experiments/trainer/choices/kept_choices.h"
#include "experiments/trainer/compression/pruning.h"
#include "experiments/trainer/compression/quantization.h"
#include "experiments/trainer/evaluation/evaluator.h"
#include "experiments/trainer/progress.h"
#include "experiments/trainer/ranks/share.h"
#include "experiments/trainer/training_state.h"
#include "optim/lr_schedule.h"

namespace convscope {

// The objects that a run needs. setup_training() makes them from a config; tests make them by hand.
struct TrainingSetup {
  std::shared_ptr<Module> model;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<Pruner> pruner;            // may be null
  std::optional<QuantPlan> quant;            // none: no quantisers in the network
  std::unique_ptr<Loader> train, val, test;  // val and test may be null
  std::function<double(const SchedulePoint&)> learning_rate;
  Device device;
  double clip_norm = 0;  // L2 norm of all gradients together; 0 = no clipping
  std::int64_t epochs = 1;
  std::int64_t epochs_now = 0;        // stops, resumable, after this many epochs; 0 = never
  std::int64_t eval_every = 1;        // epochs
  std::int64_t checkpoint_every = 1;  // epochs; 0 = only at the end
  bool keep_best = true;
  std::int64_t log_every = 50;  // steps
  bool tensorboard = false;     // also writes an event file
  bool log_layers = true;       // times single layers (layer_costs.h)
  bool plan = true;             // compiles the steps (train_step.h)
  bool scale_loss = false;      // f16 (optim/loss_scale.h)
  EarlyStopConfig early_stop;
  ExpectConfig expect;
  std::string config_yaml;      // resolved; goes into checkpoints
  std::int64_t data_bytes = 0;  // memory of the data sets, not counted as memory of a step
  RunSummary facts;             // known before the first step: name, seed, params, ...
  std::string layers_csv;
  bool remove_when_final = false;  // removal.h
  Form form = Form::dense;
  std::string memory;      // memory needed, one line for the log
  std::string start_from;  // checkpoint with the initial weights of a new run, or ""
  Share share;             // part of each batch, with several processes
  std::int64_t val_images = 0, test_images = 0;  // over all processes
};

// Loads the data, builds network, optimiser and loaders. Sets the number of threads.
CONVSCOPE_API TrainingSetup setup_training(const ExperimentConfig& config);

class CONVSCOPE_API Trainer {
 public:
  Trainer(TrainingSetup& setup, RunFolder& folder, Progress& progress);
  ~Trainer();

  // Continues from ckpt/last.safetensors, or from ckpt/previous.safetensors if last.safetensors is
  // damaged. A run without checkpoints starts from the beginning.
  void resume();
  // Runs until the last epoch, a signal or a failure. Returns the exit code 0, 130 or 143. A failed
  // run writes the reason to status.json and throws.
  int run();

  const TrainingState& state() const { return state_; }
  // Returns the path of the checkpoint that resume() has loaded, or "".
  const std::string& resumed_from() const { return resumed_from_; }
  RunSummary summary() const;

 private:
  void resume_from(const std::string& path);
  void take_over_words();
  void warn(const std::string& sentence);
  int run_epochs();
  void prepare_quantization();
  void remove_when_due();
  bool train_epoch();  // false: a signal came
  bool train_batches(LossAlarm& alarm, std::int64_t most);
  bool train_recorded(LossAlarm& alarm, std::int64_t most);
  void prepare_steps();
  // How steps run, from the slowest to the fastest.
  enum class Execution { nothing, dynamic, planned, recorded };
  void report_steps(const StepPlan* plan, Execution execution);
  void write_layers(const LayerTable& table);
  bool looks_at(std::int64_t step, Execution execution);
  bool record_steps();
  std::int64_t steps_without_host() const;
  void finish_step(LossAlarm& alarm, const StepResult& step, double waited_s, double lr,
                   double seconds, bool by_device = false);
  void before_step();
  void after_step(const StepResult& step, double waited_s, double lr);
  bool evaluate_epoch();  // false: a signal came
  void finish_epoch();
  void write_train_row(double lr);
  void write_eval_row(const char* split, const Evaluation& result);
  void write_epoch_row(bool evaluated);
  void save(const char* name, bool with_optimizer);
  void measure_result();
  void write_results();
  bool results_are_due() const;
  void write_report();
  std::string execution() const;
  int stop(int exit_code, const std::string& state, const std::string& reason);
  void count_for_early_stop();
  bool stops_early() const;
  void check_expectations() const;
  std::string kept_checkpoint() const;  // words for a failure's reason
  double learning_rate(std::int64_t step) const;
  double run_seconds() const;

  TrainingSetup& setup_;
  RunFolder& folder_;
  Progress& progress_;
  TrainingState state_;
  KeptChoices choices_;
  std::unique_ptr<AppendFile> metrics_, epochs_;
  std::unique_ptr<TensorboardLog> tensorboard_;  // null when off
  std::unique_ptr<Pruning> pruning_;             // null when nothing is pruned
  std::unique_ptr<Quantization> quantization_;   // null when nothing is quantised
  LossScale loss_scale_;                         // used with setup_.scale_loss
  std::unique_ptr<GradientExchange> exchange_;   // null when batches are not shared
  std::unique_ptr<TrainStep> step_;              // null before the first epoch
  Execution steps_reported_ = Execution::nothing;
  Execution single_steps_ = Execution::nothing;  // kind of the last step that the host started
  std::set<std::string> logged_steps_;           // all kinds of steps so far
  std::unique_ptr<StepKernels> step_kernels_;    // of the reported steps; null before the first one
  std::unique_ptr<LayerCosts> layer_costs_;      // of these steps
  bool may_record_ = false;                      // the device may run steps by itself
  std::unique_ptr<RecordedSteps> recorded_;      // null: steps run one by one
  std::unique_ptr<Evaluator> val_, test_;        // null before the first evaluation
  std::optional<InferenceTime> inference_;       // of the final network
  std::optional<double> weight_bytes_;           // of the final network
  std::string resumed_from_;
  int stop_signal_ = 0;    // why training stops, equal in all processes
  double own_weight_ = 1;  // this process's part of the last batch
  std::int64_t steps_in_process_ = 0;
  std::int64_t allocations_at_epoch_start_ = 0;
  std::string unwritten_summary_;  // of the last epoch, if its results were not due
  double results_took_s_ = 0.01;   // an estimate before the first time
  double results_s_ = 0;           // run time when they were written
  double seconds_before_ = 0;      // of earlier processes of this run
  double start_s_ = 0, last_heartbeat_s_ = 0;
  LoadSpan load_;  // since the training began
};

}  // namespace convscope
