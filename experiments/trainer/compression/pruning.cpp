// SPDX-License-Identifier: Apache-2.0
// pruning.cpp: the work before and after each step of a pruned network: runs the pruner and writes
// sparsity.csv, one row per layer whenever the masks change.
#include "experiments/trainer/compression/pruning.h"

namespace convscope {

Pruning::Pruning(Pruner& pruner, const RunFolder& folder, Progress& progress, std::int64_t steps)
    : pruner_(pruner), folder_(folder), progress_(progress) {
  const std::string path = folder.file("sparsity.csv");
  // A run that resumes without a checkpoint starts from the beginning. It writes the rows of step 0
  // again, so the file starts empty.
  csv_ = std::make_unique<AppendFile>(path, steps == 0 ? 0 : bytes_until_step(path, steps));
  if (csv_->size_bytes() == 0) csv_->append(sparsity_csv_header());
}

bool Pruning::before_step(std::int64_t steps) {
  if (!pruner_.before_step(steps)) return false;
  write(steps);
  return true;
}

bool Pruning::after_step(std::int64_t steps) {
  if (!pruner_.after_step(steps)) return false;
  write(steps);
  return true;
}

void Pruning::write(std::int64_t steps) {
  const SparsityReport report = pruner_.report(steps);
  csv_->append(sparsity_csv_rows(report));
  if (!pruner_.finished(steps)) return;
  const std::string text = cat("masks are final after step ", steps, "\n", sparsity_text(report));
  folder_.log(text);
  progress_.line(text.substr(0, text.size() - 1));
}

}  // namespace convscope
