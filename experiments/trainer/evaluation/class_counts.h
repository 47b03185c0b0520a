// SPDX-License-Identifier: Apache-2.0
// class_counts.h: counts an evaluation by class: the confusion matrix and the top-5 accuracy.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/distributed/process_group.h"
#include "framework/tensor.h"

namespace convscope {

struct CONVSCOPE_API ClassCounts {
  // The confusion matrix of more classes is not counted, because it would take too much memory.
  static constexpr std::int64_t kMaxClasses = 2000;

  std::int64_t classes = 0;  // K; 0: nothing was counted
  std::int64_t samples = 0;
  std::int64_t in_top5 = 0;          // samples whose label is among the 5 largest scores
  std::vector<std::int64_t> matrix;  // [K,K], rows = true class; empty above kMaxClasses

  // Adds the scores [N,K] of a batch, f32 or f64, with its labels i32 [N], which are 0..K-1. Equal
  // scores rank by their class, the smaller class first.
  void add(const Tensor& scores, const Tensor& labels);
  // Returns the sum over all processes; every process must call it. `counts`: whether this process
  // adds its own counts.
  ClassCounts sum(ProcessGroup& group, bool counts) const;
  // Returns the top-5 accuracy in percent; nothing with 5 classes or fewer.
  std::optional<double> top5_accuracy() const;
  // Returns confusion.csv: the column true_class, then one column for each predicted class.
  // `names`: of the classes; empty: their numbers.
  std::string csv(const std::vector<std::string>& names) const;
};

}  // namespace convscope
