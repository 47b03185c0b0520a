// SPDX-License-Identifier: Apache-2.0
// execute.h: runs a chosen algorithm with its workspace; with `checked_by` runs the second one too
// and fails, with kind kRun, when the two differ by more than their error bounds together.
#pragma once

#include "framework/memory/memory.h"
#include "framework/tensor.h"
#include "layers/conv2d/select.h"

namespace convscope {

// What one call of a card needs beside its tensors: workspace and, behind it, the prepared weights.
// Both count as workspace memory.
class CONVSCOPE_API Conv2dScratch {
 public:
  Conv2dScratch(const Conv2dAlgorithm& algorithm, const Conv2dProblem& problem, Direction direction,
                Device device);
  void* workspace() const { return memory_.data(); }
  // Prepares w, of the problem's shape, and returns the block; null when the card reads w as it is.
  const void* prepare(const void* w) const;

 private:
  const Conv2dAlgorithm& algorithm_;
  const Conv2dProblem& problem_;
  Direction direction_;
  std::size_t workspace_bytes_;
  std::size_t prepared_bytes_;
  Workspace memory_;
};

// The tensors have the problem's shapes, dtype and device: the caller has checked them. b may be
// undefined. The epilogue is applied by the algorithm when its card says so, else in a pass over y.
CONVSCOPE_API void execute_forward(const Conv2dChoice& choice, const Conv2dProblem& problem,
                                   const Tensor& x, const Tensor& w, const Tensor& b,
                                   const Tensor& y, const Conv2dEpilogue& epilogue = {});
CONVSCOPE_API void execute_backward_data(const Conv2dChoice& choice, const Conv2dProblem& problem,
                                         const Tensor& dy, const Tensor& w, const Tensor& dx);
CONVSCOPE_API void execute_backward_weight(const Conv2dChoice& choice, const Conv2dProblem& problem,
                                           const Tensor& x, const Tensor& dy, const Tensor& dw,
                                           bool accumulate);

}  // namespace convscope
