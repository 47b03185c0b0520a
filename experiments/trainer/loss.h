// SPDX-License-Identifier: Apache-2.0
// loss.h: the loss of a dynamic training step and of an evaluation. The trainer names no loss
// elsewhere.
#pragma once

#include "framework/ops/softmax_cross_entropy.h"

namespace convscope {

// Returns the mean loss of a batch, a scalar in nats. logits [N,classes], labels [N].
inline Variable training_loss(const Variable& logits, const Tensor& labels) {
  return softmax_cross_entropy(logits, labels);
}

}  // namespace convscope
