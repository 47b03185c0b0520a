// SPDX-License-Identifier: Apache-2.0
// cross_entropy.h: the loss of a classifier whose images have one class each.
//
// Shapes    x [N,K] logits, labels [N] -> the loss in nats, one element; f32 or f64
// Formula   loss = mean over n of ( log sum_k exp(x[n,k]) - x[n, label[n]] )
// Backward  dx[n,k] = (softmax(x[n])[k] - [k = label[n]]) / N * dloss; saved: the softmax
// Usage     Variable loss = softmax_cross_entropy(logits, labels);
//           in a config: train: {loss: cross_entropy}, the default
#pragma once

#include "framework/autograd/variable.h"

namespace convscope {

inline constexpr const char* kSoftmaxCrossEntropy = "softmax_cross_entropy";  // its Operation::kind

// Returns the loss. Throws for the first label outside of [0,K); labels on a GPU are not checked.
CONVSCOPE_API Variable softmax_cross_entropy(const Variable& logits, const Tensor& labels);

}  // namespace convscope
