// SPDX-License-Identifier: Apache-2.0
// quantization.h: the work before and after each step of a network with quantisers. It starts them
// at their step and writes quant.csv, one row per quantiser when all are calibrated and at the end
// of each epoch.
#pragma once

#include <memory>
#include <vector>

#include "experiments/run_folder/append_file.h"
#include "experiments/run_folder/run_folder.h"
#include "experiments/run_folder/run_summary.h"
#include "experiments/trainer/compression/kept_weights.h"
#include "quant/quant_report.h"

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

class CONVSCOPE_API Quantization {
 public:
  // Opens quant.csv. `steps`: finished training steps. Rows of later steps are dropped, because a
  // resumed run writes them again.
  Quantization(Module& model, const QuantPlan& plan, const RunFolder& folder, std::int64_t steps);
  // Tells the quantisers how many weights the changed masks keep.
  void count_kept() { convscope::count_kept(pruned_); }
  // Prepares step number `steps`. Returns true when it is the first quantised step.
  bool before_step(std::int64_t steps, bool ends_epoch);
  // Returns whether the forward pass of step number `steps` needs the host, because quantisation
  // begins, a quantiser calibrates, or a quantiser counts clipped values.
  bool step_needs_host(std::int64_t steps, bool ends_epoch) const;
  void after_step(std::int64_t steps, std::int64_t epoch);

 private:
  void observe(bool on);

  std::vector<QuantizedTensor> tensors_;
  std::vector<PrunedQuantizer> pruned_;
  QuantPlan plan_;
  const RunFolder& folder_;
  std::unique_ptr<AppendFile> csv_;
  bool begun_ = false;
  bool observing_ = false;  // a row is due after this step
};

}  // namespace convscope
