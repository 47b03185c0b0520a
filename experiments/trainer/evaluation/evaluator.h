// SPDX-License-Identifier: Apache-2.0
// evaluator.h: evaluates a network on one data set, in eval mode without a graph. On a device that
// records steps (recorded_steps.h), the data are in device memory and the results are read once at
// the end. A compiled step folds batch norm into the convolutions.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "experiments/run_folder/step_kernels.h"
#include "experiments/trainer/evaluation/class_counts.h"
#include "experiments/trainer/recorded_steps.h"
#include "experiments/trainer/training_state.h"

namespace convscope {

// The inference of a network as it is deployed: in integers, with block-sparse kernels, or as a
// smaller dense network.
struct InferenceTime {
  double batch_s = 0;  // median
  StepKernels kernels;
};

class CONVSCOPE_API Evaluator {
 public:
  // plans: as in TrainStep.
  Evaluator(Module& model, Loader& loader, Device device, bool plans, const Loss& loss = Loss())
      : model_(model), loader_(loader), device_(device), plans_(plans), loss_(loss) {}

  // Evaluates the whole data set once and restores the network's mode. `stop` is called after each
  // batch or launch; when it returns true, the evaluation ends early.
  Evaluation run(bool (*stop)() = nullptr);
  // Returns the loss of each batch of the last run(), summed over its images.
  const std::vector<double>& batch_loss_sums() const { return batch_loss_sums_; }
  // Returns the counts by class of the last run(). They are empty after recorded steps, which
  // compute the loss without storing the scores; then count_classes() evaluates the data set once
  // more, without a recording.
  const ClassCounts& class_counts() const { return class_counts_; }
  const Loader& loader() const { return loader_; }
  const ClassCounts& count_classes();
  // Measures the median time of a full batch in the network only, without loss and loader. Where
  // steps are recorded, it is the time of a recorded evaluation step, which includes the gathering
  // of the batch and the loss. Returns nothing without a full batch. Takes about 0.25 s.
  std::optional<InferenceTime> time();
  // Returns why batches of the last run() were not recorded; "" when they were, or on the CPU.
  const std::string& why_not_recorded() const { return why_not_recorded_; }

 private:
  void record();
  void add(double loss, std::int64_t images, std::int64_t correct);
  bool run_batches(bool (*stop)());
  bool run_recorded(bool (*stop)());
  std::vector<Tensor> full_batches();
  std::optional<InferenceTime> time_batches();
  std::optional<InferenceTime> time_recorded();

  Module& model_;
  Loader& loader_;
  Device device_;
  bool plans_;
  Loss loss_;
  std::unique_ptr<RecordedSteps> recorded_;
  std::string why_not_recorded_;
  LossTotals totals_;
  ClassCounts class_counts_;
  std::vector<double> batch_loss_sums_;
};

}  // namespace convscope
