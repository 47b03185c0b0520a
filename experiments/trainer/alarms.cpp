// SPDX-License-Identifier: Apache-2.0
// alarms.cpp: reports a loss that does not fall, and updates that were skipped.
#include "experiments/trainer/alarms.h"

#include <cmath>

#include "experiments/trainer/trainer.h"

namespace convscope {

LossAlarm::LossAlarm(int classes) : chance_loss_(std::log(static_cast<double>(classes))) {}

bool LossAlarm::observe(double loss) {
  state_.window_sum += loss;
  if (++state_.window_steps < kWindow) return false;
  const double mean = state_.window_sum / static_cast<double>(kWindow);
  state_.window_sum = 0;
  state_.window_steps = 0;
  if (state_.warned || std::abs(mean - chance_loss_) > 0.01 * chance_loss_) return false;
  return state_.warned = true;
}

namespace {

class Alarms final : public Hook {
 public:
  explicit Alarms(Training& run) : Hook(run), alarm_(run.setup.train->dataset().classes) {}

  void on_start() override { alarm_.restore(run_.state.alarm); }

  void after_step(const Step& step) override {
    const TrainingState& state = run_.state;
    if (alarm_.observe(step.result.loss)) {
      run_.say(cat("warning: the loss stays at ln(", run_.setup.train->dataset().classes,
                   "), the loss of guessing, for ", LossAlarm::kWindow, " steps up to step ",
                   state.step, " (learning rate ", step.lr,
                   "); try another optim.lr, and check labels, normalisation and the last layer"));
    }
    run_.state.alarm = alarm_.state();
    if (step.result.skipped) {
      run_.folder.log(cat("step ", state.step,
                          ": no update, a scaled gradient was not finite; the loss scale is ",
                          state.loss_scale.scale, " now"));
    }
  }

 private:
  LossAlarm alarm_;
};

}  // namespace

HookPointer alarm_hook(Training& run) { return std::make_unique<Alarms>(run); }

}  // namespace convscope
