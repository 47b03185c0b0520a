// SPDX-License-Identifier: Apache-2.0
// pruning.h: what the trainer does around each step of a network that is pruned: lets the pruner
// work and writes sparsity.csv, a row for each layer whenever the masks change.
#pragma once

#include <memory>

#include "experiments/run_folder/append_file.h"
#include "experiments/run_folder/run_folder.h"
#include "experiments/trainer/progress.h"
#include "sparsity/pruner.h"

namespace convscope {

class CONVSCOPE_API Pruning {
 public:
  // `steps`: training steps that are done; rows of later ones, behind the checkpoint that a run
  // goes on from, are dropped: they will be written again.
  Pruning(Pruner& pruner, const RunFolder& folder, Progress& progress, std::int64_t steps);
  // True when the masks have changed.
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
