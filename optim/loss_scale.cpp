// SPDX-License-Identifier: Apache-2.0
// loss_scale.cpp: keeps small gradients above the smallest fp16 number in convolutions and linear
// layers that multiply in fp16.
#include "optim/loss_scale.h"

#include <cmath>

#include "optim/update.h"

namespace convscope {

bool LossScale::unscale(const std::vector<OptimParameter>& parameters) {
  // The table is kept between calls, so that a repeated training step does not reallocate it.
  thread_local UpdateTable table({});
  table.clear();
  for (const OptimParameter& parameter : parameters) table.add(parameter.variable);
  if (table.rows().empty()) return true;
  // The squares are summed in double, which finite f32 gradients cannot overflow: the norm is
  // finite if and only if every gradient is.
  const bool finite = std::isfinite(gradient_norm_kernel.get(table.device())(table));
  if (finite) scale_gradients_kernel.get(table.device())(table, 1 / state_.scale);
  state_.advance(finite);
  return finite;
}

}  // namespace convscope
