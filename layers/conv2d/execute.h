// SPDX-License-Identifier: Apache-2.0
// execute.h: runs a chosen convolution algorithm. When the choice has `checked_by`, that second
// algorithm runs as well. An error of kind kRun is thrown when their results differ by more than
// the sum of both error bounds (layers/dispatch/execute.h).
#pragma once

#include "framework/tensor.h"
#include "layers/conv2d/select.h"
#include "layers/dispatch/run.h"

namespace convscope {

using Conv2dScratch = Scratch<Conv2dProblem>;

// Computes one direction. Tensors have the problem's shapes, dtype and device (the caller checks
// this); b may be undefined. The algorithm fuses the epilogue if it can; otherwise a pass over y
// applies it.
CONVSCOPE_API void execute_forward(const Conv2dChoice& choice, const Conv2dProblem& problem,
                                   const Tensor& x, const Tensor& w, const Tensor& b,
                                   const Tensor& y, const Conv2dEpilogue& epilogue = {});
CONVSCOPE_API void execute_backward_data(const Conv2dChoice& choice, const Conv2dProblem& problem,
                                         const Tensor& dy, const Tensor& w, const Tensor& dx);
CONVSCOPE_API void execute_backward_weight(const Conv2dChoice& choice, const Conv2dProblem& problem,
                                           const Tensor& x, const Tensor& dy, const Tensor& dw,
                                           bool accumulate);

}  // namespace convscope
