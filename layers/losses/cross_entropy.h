// SPDX-License-Identifier: Apache-2.0
// cross_entropy.h: the loss of a classifier whose images have one class each.
//
// Shapes    x [N,K] logits, labels [N] -> the loss in nats, one element; f32 or f64
// Formula   loss = mean over n of ( log sum_k exp(x[n,k]) - x[n, label[n]] )
// Backward  dx[n,k] = (softmax(x[n])[k] - [k = label[n]]) / N * dloss; saved: the softmax
// Options   with class weights w and label smoothing s, as in PyTorch:
//           loss = sum over n and k of c[n,k] * -log p[n,k] / sum over n of w[label[n]]
//           c[n,k] = w[k] ((1 - s) [k = label[n]] + s / K),  p[n] = softmax(x[n])
//           dx[n,k] = (p[n,k] sum over j of c[n,j] - c[n,k]) / sum over n of w[label[n]] * dloss
//           saved: dx N / dloss
// Usage     Variable loss = softmax_cross_entropy(logits, labels);
//           in a config: train: {loss: cross_entropy}, the default
//           train: {loss: {type: cross_entropy, label_smoothing: 0.1}}
// Paper     C. Szegedy et al.: Rethinking the Inception Architecture, CVPR 2016, arXiv:1512.00567
#pragma once

#include "framework/autograd/variable.h"

namespace convscope {

inline constexpr const char* kSoftmaxCrossEntropy = "softmax_cross_entropy";  // its Operation::kind

// Returns the loss. Throws for the first label outside of [0,K); labels on a GPU are not checked.
CONVSCOPE_API Variable softmax_cross_entropy(const Variable& logits, const Tensor& labels);

}  // namespace convscope
