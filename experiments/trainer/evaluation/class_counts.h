// SPDX-License-Identifier: Apache-2.0
// class_counts.h: counts an evaluation by class: the confusion matrix, the top-5 accuracy, and the
// intersection over union of each class.
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
  bool has_pixels = false;   // the samples are pixels, not images
  std::int64_t samples = 0;
  std::int64_t in_top5 = 0;          // samples whose label is among the 5 largest scores
  std::vector<std::int64_t> matrix;  // [K,K], rows = true class; empty above kMaxClasses

  // Adds the scores [N,K] or [N,K,H,W] of a batch, f32 or f64, with its labels i32 [N] or [N,H,W],
  // which are 0..K-1. Equal scores rank by their class, the smaller class first.
  void add(const Tensor& scores, const Tensor& labels);
  // Returns the sum over all processes; every process must call it. `counts`: whether this process
  // adds its own counts.
  ClassCounts sum(ProcessGroup& group, bool counts) const;
  // Returns the top-5 accuracy in percent; nothing with 5 classes or fewer.
  std::optional<double> top5_accuracy() const;
  // Returns the intersection over union of each class in percent; -1 for an empty union. The
  // intersection are the pixels that have the class and are predicted as it, the union those that
  // have it or are predicted as it. Returns nothing without pixels or without a matrix.
  std::vector<double> class_iou() const;
  // Returns confusion.csv: the column true_class, then one column for each predicted class.
  // `names`: of the classes; empty: their numbers.
  std::string csv(const std::vector<std::string>& names) const;
};

}  // namespace convscope
