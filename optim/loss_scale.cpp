// SPDX-License-Identifier: Apache-2.0
// loss_scale.cpp: keeps small gradients above the smallest binary16 number while they pass through
// convolutions and linear layers that multiply in f16.
#include "optim/loss_scale.h"

#include <algorithm>
#include <cmath>

#include "optim/update.h"

namespace convscope {

bool LossScale::unscale(const std::vector<OptimParameter>& parameters) {
  // Kept between calls, so a repeated training step does not grow it again.
  thread_local UpdateTable table({});
  table.clear();
  for (const OptimParameter& parameter : parameters) table.add(parameter.variable);
  if (table.rows().empty()) return true;
  // The squares are summed in double, which no finite f32 overflows: the norm is finite when every
  // gradient is.
  if (!std::isfinite(gradient_norm_kernel.get(table.device())(table))) {
    state_.scale = std::max(state_.scale / 2, 1.0);
    state_.good_steps = 0;
    ++state_.skipped;
    return false;
  }
  scale_gradients_kernel.get(table.device())(table, 1 / state_.scale);
  if (++state_.good_steps >= kGoodSteps) {
    state_.scale = std::min(state_.scale * 2, kLargest);
    state_.good_steps = 0;
  }
  return true;
}

}  // namespace convscope
