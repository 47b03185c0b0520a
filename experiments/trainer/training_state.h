// SPDX-License-Identifier: Apache-2.0
// training_state.h: all numbers, besides tensors, that a run needs to resume with the same bits,
// and its reported averages. A plain struct of numbers; checkpoint.cpp converts it to JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "experiments/trainer/alarms.h"
#include "experiments/trainer/train_step.h"

namespace convscope {

// Number of first steps in each process that are left out of the averages, because caches are cold,
// memory is allocated and algorithms are chosen. If a run has no other steps, it averages these.
inline constexpr std::int64_t kTimingWarmupSteps = 5;

// Sums over steps.
struct StepTotals {
  std::int64_t steps = 0, images = 0;
  std::int64_t whole_steps = 0;    // recorded ones, without separate times of phases
  std::int64_t planned_steps = 0;  // without whole_steps
  double forward_s = 0, backward_s = 0, update_s = 0;
  double whole_s = 0;     // of whole_steps
  double wait_s = 0;      // waiting for the loader
  double exchange_s = 0;  // part of backward_s: waiting for other processes
  double forward_bytes = 0, backward_peak_bytes = 0;
  std::int64_t workspace_peak_bytes = 0;  // largest over all steps

  void add(const StepResult& step, double waited_s) {
    ++steps;
    images += step.images;
    forward_s += step.forward_s;
    backward_s += step.backward_s;
    update_s += step.update_s;
    whole_s += step.whole_s;
    whole_steps += step.whole_s > 0 ? 1 : 0;
    planned_steps += step.planned ? 1 : 0;
    wait_s += waited_s;
    exchange_s += step.exchange_s;
    forward_bytes += static_cast<double>(step.forward_bytes);
    backward_peak_bytes += static_cast<double>(step.backward_peak_bytes);
    if (step.workspace_peak_bytes > workspace_peak_bytes) {
      workspace_peak_bytes = step.workspace_peak_bytes;
    }
  }
  // Returns the mean of a sum; 0 without steps.
  double mean(double sum) const { return steps == 0 ? 0 : sum / static_cast<double>(steps); }
  // Returns the mean time of a phase over the steps in which it was timed.
  double phase(double sum) const {
    return steps == whole_steps ? 0 : sum / static_cast<double>(steps - whole_steps);
  }
  double busy_s() const { return forward_s + backward_s + update_s + whole_s; }
  const char* phases() const {
    return whole_steps == 0 ? "timed apart" : whole_steps == steps ? "whole step" : "mixed";
  }
  // Returns how most of the steps ran; "" without steps.
  const char* way() const {
    if (steps == 0) return "";
    const std::int64_t dynamic = steps - planned_steps - whole_steps;
    if (dynamic > planned_steps && dynamic > whole_steps) return "dynamic";
    return whole_steps >= planned_steps ? "recorded" : "planned";
  }
  double images_per_s() const {
    const double total = busy_s() + wait_s;
    return total > 0 ? static_cast<double>(images) / total : 0;
  }
};

// Mean loss and accuracy over a range of training steps.
struct LossTotals {
  double loss_sum = 0;  // weighted by images
  std::int64_t images = 0, correct = 0;
  std::int64_t labels_per_image = 1;
  void add(const StepResult& step) {
    loss_sum += step.loss * static_cast<double>(step.images);
    images += step.images;
    correct += step.correct;
    labels_per_image = step.labels_per_image;
  }
  double loss() const { return images == 0 ? 0 : loss_sum / static_cast<double>(images); }
  double accuracy() const {  // percent
    const auto labels = static_cast<double>(images * labels_per_image);
    return images == 0 ? 0 : 100.0 * static_cast<double>(correct) / labels;
  }
};

struct Evaluation {
  double loss = 0;      // mean over all images, in nats
  double accuracy = 0;  // percent of the images, or of their pixels
  std::int64_t images = 0;
  double top5 = -1;  // percent of images or pixels with the label among the 5 largest; -1: unknown
  // Intersection over union of each class in percent, -1 for a class that does not occur; empty
  // without a class for each pixel.
  std::vector<double> class_iou = {};
  bool complete = true;  // false: stopped early

  // Returns the mean over the classes that occur.
  std::optional<double> mean_iou() const {
    double sum = 0, count = 0;
    for (const double iou : class_iou) {
      if (iou >= 0) sum += iou, ++count;
    }
    return count > 0 ? std::optional<double>(sum / count) : std::nullopt;
  }
};

struct TrainingState {
  std::int64_t epoch = 0;              // present epoch, from 0; = epochs at the end
  std::int64_t batch = 0;              // batches of epoch done; if all, only evaluation is left
  std::int64_t step = 0;               // updates since the start of the run
  LossTotals epoch_loss;               // of this epoch so far
  LossTotals last_epoch;               // of the last finished epoch
  std::int64_t epoch_allocations = 0;  // system allocations during the last finished epoch
  LossTotals window_loss;              // since the last line of metrics.jsonl
  StepTotals epoch_steps;              // of this epoch so far, warm-up included
  StepTotals run_steps;                // of the whole run, without warm-up steps
  StepTotals warmup_steps;             // of the whole run, those left out
  double epoch_s = 0;                  // wall time of this epoch so far, without evaluation
  double run_s = 0;                    // wall time of the run so far, all included
  LossAlarm::State alarm;
  LossScale::State loss_scale;
  // The last evaluation. `images` is 0 before the first evaluation.
  Evaluation val, test;
  double best_accuracy = -1;  // percent, on the deciding split; -1 = none yet
  std::int64_t best_epoch = 0;
  // Early stopping: the number of evaluations since the last improvement, and the best value so
  // far, which is the accuracy or the loss times -1.
  std::int64_t waited_evaluations = 0, waits_since_epoch = 0;  // epoch 0: none yet
  double waits_for = 0;
  // Lengths of the files in bytes at the checkpoint. A resumed run writes the data after these
  // lengths again.
  std::int64_t metrics_bytes = 0, epochs_bytes = 0;
};

}  // namespace convscope
