// SPDX-License-Identifier: Apache-2.0
// steps.h: runs the steps of a training: one by one, or several recorded ones in a launch. Writes
// layers.csv, which names the kernels of a step and the times of the layers.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "experiments/run_folder/layer_costs.h"
#include "experiments/run_folder/step_kernels.h"
#include "experiments/trainer/hook.h"
#include "experiments/trainer/recorded_steps.h"
#include "experiments/trainer/train_step.h"

namespace convscope {

struct Training;

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

}  // namespace convscope
