// SPDX-License-Identifier: Apache-2.0
// evaluator.cpp: evaluates a network on one data set, batch by batch or with recorded steps.
#include "experiments/trainer/evaluation/evaluator.h"

#include <algorithm>
#include <chrono>
#include <functional>

#include "experiments/bench/statistics.h"
#include "experiments/trainer/batch_feed.h"

namespace convscope {
namespace {

using Clock = std::chrono::steady_clock;

// Sets a network to eval mode without a graph, and restores its mode in the end.
class EvalMode {
 public:
  explicit EvalMode(Module& model) : model_(model), was_training_(model.is_training()) {
    model_.eval();
  }
  ~EvalMode() { model_.train(was_training_); }
  EvalMode(const EvalMode&) = delete;
  EvalMode& operator=(const EvalMode&) = delete;

 private:
  Module& model_;
  bool was_training_;
  NoGrad no_grad_;
};

constexpr int kWarmup = 3;           // number of warm-up batches
constexpr int kLeast = 5;            // minimum number of timed batches
constexpr int kMax = 200;            // more do not improve the median
constexpr double kEnough_s = 0.25;   // of timed batches
constexpr std::size_t kBatches = 4;  // number of different ones, in turn

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median_of_runs(const std::function<void(std::size_t)>& run) {
  std::vector<double> seconds;
  double sum = 0;
  for (std::size_t i = 0; seconds.size() < kMax; ++i) {
    const Clock::time_point start = Clock::now();
    run(i);
    const double took = seconds_since(start);
    if (i < kWarmup) continue;
    seconds.push_back(took);
    sum += took;
    if (sum > kEnough_s && seconds.size() >= kLeast) break;
  }
  return middle_value(std::move(seconds));
}

}  // namespace

// Records the evaluation steps if the device can. Records them again after a change of what the
// network computes.
void Evaluator::record() {
  if (recorded_ && !recorded_->is_current()) recorded_.reset();
  const bool may = plans_ && device_.type != DeviceType::cpu && why_not_recorded_.empty();
  if (!recorded_ && may) {
    recorded_ = RecordedSteps::make(model_, nullptr, 0, loader_, device_, &why_not_recorded_, {},
                                    nullptr, nullptr, loss_);
  }
}

Evaluation Evaluator::run(bool (*stop)()) {
  record();
  totals_ = {};
  class_counts_ = {};
  batch_loss_sums_.clear();
  const bool complete = recorded_ ? run_recorded(stop) : run_batches(stop);
  return {.loss = totals_.loss(),
          .accuracy = totals_.accuracy(),
          .images = totals_.images,
          .top5 = class_counts_.top5_accuracy().value_or(-1),
          .class_iou = class_counts_.class_iou(),
          .complete = complete};
}

const ClassCounts& Evaluator::count_classes() {
  if (class_counts_.samples > 0) return class_counts_;
  batch_loss_sums_.clear();
  run_batches(nullptr);
  return class_counts_;
}

std::optional<InferenceTime> Evaluator::time() {
  record();
  if (loader_.dataset().size() < loader_.options().batch_size) return std::nullopt;
  return recorded_ ? time_recorded() : time_batches();
}

void Evaluator::add(double loss, std::int64_t images, std::int64_t correct) {
  batch_loss_sums_.push_back(loss * static_cast<double>(images));
  totals_.add({.loss = loss,
               .images = images,
               .labels_per_image = loader_.dataset().label_shape().numel(),
               .correct = correct});
}

// Returns false when `stop` has ended the evaluation.
bool Evaluator::run_batches(bool (*stop)()) {
  const EvalMode eval_mode(model_);
  Batch from_loader;
  BatchFeed feed(device_);
  std::unique_ptr<StepPlan> plan;  // of the last shape
  std::string why_dynamic;
  bool stopped = false;
  loader_.start_epoch(0);
  while (!stopped && loader_.next(from_loader)) {
    const Batch batch = feed.send(from_loader);
    const Shape& input = batch.x.shape();
    if (plans_ && why_dynamic.empty() && (!plan || plan->input() != input)) {
      plan = StepPlan::make(model_, input, PlanMode::inference, &why_dynamic,
                            plan ? plan->arena() : Ref<Storage>());
      if (plan) plan->prepare();
    }
    const Variable logits =
        plan ? Variable(plan->infer(batch.x)) : model_.forward(Variable(batch.x));
    add(loss_(logits, batch.labels).value().item(), batch.x.dim(0),
        loss_.correct(logits.value(), batch.labels));
    class_counts_.add(logits.value(), from_loader.labels);
    stopped = stop != nullptr && stop();
  }
  return !stopped;
}

// Returns false when `stop` has ended the evaluation.
bool Evaluator::run_recorded(bool (*stop)()) {
  bool stopped = false;
  recorded_->start_epoch(0, 0, 0);
  while (true) {
    while (!stopped && recorded_->queue({}) > 0) {
    }
    if (recorded_->in_flight() == 0) return !stopped;
    const RecordedSteps::Launch launch = recorded_->collect();
    for (int i = 0; i < launch.steps; ++i) {
      const StepOutcome& outcome = launch.outcomes[i];
      add(static_cast<double>(outcome.loss), launch.images_per_step, outcome.correct);
    }
    stopped = stopped || (stop != nullptr && stop());
  }
}

// Returns the first full batches, on the device.
std::vector<Tensor> Evaluator::full_batches() {
  std::vector<Tensor> out;
  Batch batch;
  loader_.start_epoch(0);
  while (out.size() < kBatches && loader_.next(batch)) {
    if (batch.x.dim(0) != loader_.options().batch_size) break;
    out.push_back(device_.type == DeviceType::cpu ? batch.x.clone() : batch.x.to(device_));
  }
  return out;
}

// Times launches of full batches by the device's clock. The first pass makes the recordings.
std::optional<InferenceTime> Evaluator::time_recorded() {
  std::vector<double> seconds;
  double sum = 0;
  for (int pass = 0; pass < kMax && (pass < 2 || sum < kEnough_s); ++pass) {
    recorded_->start_epoch(0, 0, 0);
    while (true) {
      while (recorded_->queue({}) > 0) {
      }
      if (recorded_->in_flight() == 0) break;
      const RecordedSteps::Launch launch = recorded_->collect();
      if (pass == 0 || launch.images_per_step != loader_.options().batch_size) continue;
      seconds.push_back(launch.seconds / launch.steps);
      sum += launch.seconds;
    }
    if (pass > 0 && seconds.empty()) return std::nullopt;
  }
  return InferenceTime{middle_value(std::move(seconds)),
                       planned_kernels(recorded_->plan(), /*recorded=*/true)};
}

std::optional<InferenceTime> Evaluator::time_batches() {
  const std::vector<Tensor> batches = full_batches();
  if (batches.empty()) return std::nullopt;
  const EvalMode eval_mode(model_);
  const DeviceBackend& backend = backend_of(device_);
  InferenceTime out;
  std::string why = "the config says so";
  const auto plan =
      plans_ ? StepPlan::make(model_, batches[0].shape(), PlanMode::inference, &why) : nullptr;
  if (plan) plan->prepare();
  out.batch_s = median_of_runs([&](std::size_t i) {
    const Tensor& x = batches[i % batches.size()];
    if (plan) {
      plan->infer(x);
    } else {
      model_.forward(Variable(x));
    }
    backend.synchronize(device_.index);
  });
  out.kernels =
      plan ? planned_kernels(*plan)
           : dynamic_kernels(model_, batches[0].shape(), device_, PlanMode::inference, why);
  return out;
}

}  // namespace convscope
