// SPDX-License-Identifier: Apache-2.0
// pruning.h: the work before and after each step of a pruned network: runs the pruner and writes
// sparsity.csv, one row per layer whenever the masks change.
#pragma once

#include <memory>

#include "experiments/run_folder/append_file.h"
#include "experiments/run_folder/run_folder.h"
#include "experiments/trainer/progress.h"
#include "sparsity/pruner.h"

namespace convscope {

class CONVSCOPE_API Pruning {
 public:
  // Opens sparsity.csv. `steps`: finished training steps. Rows of later steps are dropped, because
  // a resumed run writes them again.
  Pruning(Pruner& pruner, const RunFolder& folder, Progress& progress, std::int64_t steps);
  // Returns true when the masks have changed.
  bool before_step(std::int64_t steps);
  bool after_step(std::int64_t steps);

 private:
  void write(std::int64_t steps);
  Pruner& pruner_;
  const RunFolder& folder_;
  Progress& progress_;
  std::unique_ptr<AppendFile> csv_;
};

}  // namespace convscope
