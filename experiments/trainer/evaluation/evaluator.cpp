// SPDX-License-Identifier: Apache-2.0
// evaluator.cpp: evaluates one data set repeatedly, with recorded steps or with evaluate().
#include "experiments/trainer/evaluation/evaluator.h"

namespace convscope {

// Records the evaluation steps if the device can. Records them again after a change of what the
// network computes.
void Evaluator::record() {
  if (recorded_ && !recorded_->is_current()) recorded_.reset();
  const bool may = plans_ && device_.type != DeviceType::cpu && why_not_recorded_.empty();
  if (!recorded_ && may) {
    recorded_ = RecordedSteps::make(model_, nullptr, 0, loader_, device_, &why_not_recorded_);
  }
}

Evaluation Evaluator::run(bool (*stop)()) {
  record();
  batch_loss_sums_.clear();
  return recorded_ ? run_recorded(stop)
                   : evaluate(model_, loader_, stop, plans_, &batch_loss_sums_);
}

std::optional<InferenceTime> Evaluator::time() {
  record();
  return measure_inference(model_, loader_, device_, plans_, recorded_.get());
}

Evaluation Evaluator::run_recorded(bool (*stop)()) {
  Evaluation result;
  double loss_sum = 0;
  std::int64_t correct = 0;
  recorded_->start_epoch(0, 0, 0);
  while (true) {
    while (result.complete && recorded_->queue({}) > 0) {
    }
    if (recorded_->in_flight() == 0) break;
    const RecordedSteps::Launch launch = recorded_->collect();
    for (int i = 0; i < launch.steps; ++i) {
      batch_loss_sums_.push_back(static_cast<double>(launch.outcomes[i].loss) *
                                 static_cast<double>(launch.images_per_step));
      loss_sum += batch_loss_sums_.back();
      correct += launch.outcomes[i].correct;
      result.images += launch.images_per_step;
    }
    if (stop != nullptr && stop()) result.complete = false;
  }
  if (result.images > 0) {
    result.loss = loss_sum / static_cast<double>(result.images);
    result.accuracy = 100.0 * static_cast<double>(correct) / static_cast<double>(result.images);
  }
  return result;
}

}  // namespace convscope
