// SPDX-License-Identifier: Apache-2.0
// evaluation_hook.cpp: evaluates the held-out images after an epoch, chooses the best epoch
// so far, and counts the evaluations without an improvement for early stopping.
#include <cmath>

#include "experiments/trainer/ranks/shared_training.h"
#include "experiments/trainer/trainer.h"
#include "optim/slow_weights.h"

namespace convscope {
namespace {

class EvaluationHook final : public Hook {
 public:
  using Hook::Hook;

  void on_start() override { on_new_network(); }

  void on_new_network() override {
    TrainingSetup& s = run_.setup;
    if (s.val) run_.val.emplace(*s.model, *s.val, s.device, s.plan, s.loss);
    if (s.test) run_.test.emplace(*s.model, *s.test, s.device, s.plan, s.loss);
  }

  bool evaluate() override {
    const TrainingSetup& setup = run_.setup;
    TrainingState& state = run_.state;
    if (!setup.evaluates_after(state.epoch + 1)) return true;
    const AveragedWeights averages(setup.averaged());
    ClassCounts val_classes;
    if (!evaluate(run_.val, setup.val_images, state.val, val_classes) ||
        !evaluate(run_.test, setup.test_images, state.test, run_.test_classes)) {
      run_.stop_signal = agreed_stop(setup.share.group);
      return false;
    }
    for (const Evaluation* result : {&state.val, &state.test}) {
      if (std::isfinite(result->loss)) continue;
      fail(ErrorKind::kRun, "train",
           cat("expected a finite loss on the held-out images, got ", result->loss, " after epoch ",
               state.epoch + 1, ", step ", state.step, ", learning rate ",
               run_.learning_rate(state.step - 1), run_.kept_checkpoint()));
    }
    return true;
  }

  void after_epoch() override {
    choose_best();
    // Recorded evaluations count no classes, so the final network is evaluated once more.
    const bool ends = run_.state.epoch == run_.setup.epochs || run_.stops_early();
    if (!ends || !run_.test || run_.test_classes.samples > 0) return;
    const AveragedWeights averages(run_.setup.averaged());
    note_classes(run_.test->count_classes(), *run_.setup.test, run_.setup.test_images,
                 run_.state.test, run_.test_classes);
  }

 private:
  void choose_best() {
    TrainingState& state = run_.state;
    const TrainingSetup& setup = run_.setup;
    // A network that is not yet fully pruned or quantised cannot be the best one.
    const bool is_final = (!setup.pruner || setup.pruner->finished(state.step)) &&
                          (!setup.quant || setup.quant->has_begun(state.step));
    if (!is_final || !setup.evaluates_after(state.epoch)) return;
    const Evaluation& deciding = setup.val ? state.val : state.test;
    if (deciding.images > 0 && deciding.accuracy > state.best_accuracy) {
      state.best_accuracy = deciding.accuracy;
      state.best_epoch = state.epoch;
    }
    if (setup.early_stop.patience && setup.val) count_for_early_stop(setup.early_stop);
  }

  // Sets `counts` to the counts of all processes, and the results that follow from them.
  void note_classes(const ClassCounts& own, const Loader& loader, std::int64_t images,
                    Evaluation& result, ClassCounts& counts) const {
    ProcessGroup* const group = run_.setup.share.group;
    if (group == nullptr) {
      counts = own;
    } else {
      // With fewer batches than processes, each process has evaluated all images.
      const bool has_all = loader.dataset().size() == images;
      counts = own.sum(*group, !has_all || group->rank() == 0);
    }
    result.top5 = counts.top5_accuracy().value_or(-1);
    result.class_iou = counts.class_iou();
  }

  // Returns false after a signal. `images`: over all processes.
  bool evaluate(std::optional<Evaluator>& evaluator, std::int64_t images, Evaluation& into,
                ClassCounts& counts) const {
    if (!evaluator) return true;
    Evaluation result = evaluator->run([] { return stop_signal() != 0; });
    if (ProcessGroup* const group = run_.setup.share.group; group != nullptr) {
      result = combined_evaluation(*group, result, evaluator->batch_loss_sums(), images,
                                   *run_.setup.train);
    }
    if (!result.complete) return false;
    note_classes(evaluator->class_counts(), evaluator->loader(), images, result, counts);
    into = result;
    return true;
  }

  void count_for_early_stop(const EarlyStopConfig& config) {
    TrainingState& state = run_.state;
    const bool by_loss = config.metric == "val_loss";
    const double now = by_loss ? -state.val.loss : state.val.accuracy;
    if (state.waits_since_epoch == 0 || now > state.waits_for + config.min_delta) {
      state.waits_for = now;
      state.waits_since_epoch = state.epoch;
      state.waited_evaluations = 0;
    } else {
      ++state.waited_evaluations;
    }
  }
};

}  // namespace

HookPointer evaluation_hook(Training& run) { return std::make_unique<EvaluationHook>(run); }

}  // namespace convscope
