// SPDX-License-Identifier: Apache-2.0
// quantization.h: what the trainer does around each step of a network with quantisers: lets them
// begin at their step and writes quant.csv, a row for each of them when all are
// calibrated and at the end of each epoch.
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
  std::int64_t begin_step = 0;  // number of the first step that is quantised
  std::int64_t calibration_batches = 1;
  bool on_integers = false;  // evaluations compute with codes
  // After so many steps: whether an evaluation is one of the quantised network.
  bool has_begun(std::int64_t steps) const { return begin_step == 0 || steps > begin_step; }
  bool calibrates(std::int64_t step) const {  // in this step
    return step >= begin_step && step < begin_step + calibration_batches;
  }
  Arithmetic arithmetic(std::int64_t steps) const {  // of an evaluation
    return !has_begun(steps) ? Arithmetic::f32
           : on_integers     ? Arithmetic::int8
                             : Arithmetic::fake_quant;
  }
};

class CONVSCOPE_API Quantization {
 public:
  // `steps`: training steps that are done; rows of later ones are dropped, as in pruning.h.
  Quantization(Module& model, const QuantPlan& plan, const RunFolder& folder, std::int64_t steps);
  // When masks have changed: tells the quantisers how many weights they leave.
  void count_kept() { convscope::count_kept(pruned_); }
  // Before step number `steps`. True when it is the first that is quantised.
  bool before_step(std::int64_t steps, bool ends_epoch);
  // Whether step number `steps` begins, calibrates or counts: then its forward needs the host.
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
