// SPDX-License-Identifier: Apache-2.0
// setup.h: the objects and settings that a training needs.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "datasets/loader.h"
#include "experiments/config/experiment_config.h"
#include "experiments/run_folder/run_summary.h"
#include "experiments/trainer/ranks/share.h"
#include "layers/losses/loss.h"
#include "layers/module.h"
#include "optim/lr_schedule.h"
#include "optim/optimizer.h"
#include "sparsity/pruner.h"

namespace convscope {

struct QuantPlan {
  std::int64_t begin_step = 0;  // number of the first quantised step
  std::int64_t calibration_batches = 1;
  bool on_integers = false;  // evaluations compute with integer codes
  // Returns whether an evaluation after `steps` steps uses the quantised network.
  bool has_begun(std::int64_t steps) const { return begin_step == 0 || steps > begin_step; }
  bool calibrates(std::int64_t step) const {  // whether this step calibrates
    return step >= begin_step && step < begin_step + calibration_batches;
  }
  Arithmetic arithmetic(std::int64_t steps) const {  // arithmetic of an evaluation
    return !has_begun(steps) ? Arithmetic::f32
           : on_integers     ? Arithmetic::int8
                             : Arithmetic::fake_quant;
  }
};

// setup_training() makes this from a config; tests make it by hand.
struct TrainingSetup {
  std::shared_ptr<Module> model;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<Pruner> pruner;            // may be null
  std::optional<QuantPlan> quant;            // none: no quantisers in the network
  std::unique_ptr<Loader> train, val, test;  // val and test may be null
  std::function<double(const SchedulePoint&)> learning_rate;
  Device device;
  Loss loss;
  double clip_norm = 0;  // L2 norm of all gradients together; 0 = no clipping
  std::int64_t epochs = 1;
  std::int64_t epochs_now = 0;        // stops, resumable, after this many epochs; 0 = never
  std::int64_t eval_every = 1;        // epochs
  std::int64_t checkpoint_every = 1;  // epochs; 0 = only at the end
  bool keep_best = true;
  std::int64_t log_every = 50;   // steps
  bool tensorboard = false;      // also writes an event file
  bool log_layers = true;        // times single layers (layer_costs.h)
  bool plan = true;              // compiles the steps (train_step.h)
  bool scale_loss = false;       // f16 (optim/loss_scale.h)
  bool evaluate_average = true;  // evaluations use the averages of the weights, if there are any
  EarlyStopConfig early_stop;
  ExpectConfig expect;
  std::string config_yaml;      // resolved; goes into checkpoints
  std::int64_t data_bytes = 0;  // memory of the data sets, not counted as memory of a step
  RunSummary facts;             // known before the first step: name, seed, params, ...
  std::string layers_csv;
  bool remove_when_final = false;  // compression/removal.cpp
  Form form = Form::dense;
  std::string memory;      // memory needed, one line for the log
  std::string start_from;  // checkpoint with the initial weights of a new run, or ""
  Share share;             // part of each batch, with several processes
  std::int64_t val_images = 0, test_images = 0;  // over all processes

  // Returns the optimiser whose averages (optim/slow_weights.h) evaluations and exports use; null
  // if they use the weights.
  Optimizer* averaged() const { return evaluate_average ? optimizer.get() : nullptr; }
  // Returns whether the held-out images are evaluated after this many epochs.
  bool evaluates_after(std::int64_t epoch) const {
    return epoch % eval_every == 0 || epoch == epochs;
  }
  // Returns the shape of `images` images of the training data.
  Shape input(std::int64_t images) const;
  // Returns the shape of the images that this process computes at once in a full batch.
  Shape input() const;
  // Takes layers_csv and the facts about the network from the network, before its first step.
  void describe_network();
};

// Loads the data, builds network, optimiser and loaders. Sets the number of threads.
CONVSCOPE_API TrainingSetup setup_training(const ExperimentConfig& config);

// Prepares a run that resumes from a checkpoint after the removal; `config_yaml` is the
// checkpoint's. Gives network and optimiser the sizes of the checkpoint, with initial values. For a
// checkpoint before the removal, changes nothing and returns false.
CONVSCOPE_API bool rebuild_removed(TrainingSetup& setup, const std::string& config_yaml);

// Throws Error of kind kConfig when `data.val_split` leaves no training images, or when
// `data.batch_size` is larger than the number of remaining images. Without this check, a smaller
// batch would be timed and reported as a batch of `data.batch_size` images.
CONVSCOPE_API void check_data_sizes(const DataConfig& data, std::int64_t training_images);

// Throws (kRun) when a layer cannot train on a full batch, or on the last batch of an epoch, which
// may be smaller.
CONVSCOPE_API void check_batches(const TrainingSetup& setup);

}  // namespace convscope
