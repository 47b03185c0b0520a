// SPDX-License-Identifier: Apache-2.0
// evaluator.h: evaluates one data set repeatedly. On a device that records steps
// (recorded_steps.h), the data are in device memory and the results are read once at the end. On
// other devices, evaluate() runs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "experiments/trainer/evaluation/inference_time.h"
#include "experiments/trainer/recorded_steps.h"
#include "experiments/trainer/train_step.h"

namespace convscope {

class CONVSCOPE_API Evaluator {
 public:
  // plans: as in TrainStep.
  Evaluator(Module& model, Loader& loader, Device device, bool plans)
      : model_(model), loader_(loader), device_(device), plans_(plans) {}

  // Evaluates the whole data set once, as evaluate() does.
  Evaluation run(bool (*stop)() = nullptr);
  // Returns the loss of each batch of the last run(), summed over its images.
  const std::vector<double>& batch_loss_sums() const { return batch_loss_sums_; }
  // Returns the time that an evaluation takes per batch, without the loader (inference_time.h).
  std::optional<InferenceTime> time();
  // Returns why batches of the last run() were not recorded; "" when they were, or on the CPU.
  const std::string& why_not_recorded() const { return why_not_recorded_; }

 private:
  void record();
  Evaluation run_recorded(bool (*stop)());

  Module& model_;
  Loader& loader_;
  Device device_;
  bool plans_;
  std::unique_ptr<RecordedSteps> recorded_;
  std::string why_not_recorded_;
  std::vector<double> batch_loss_sums_;
};

}  // namespace convscope
