// SPDX-License-Identifier: Apache-2.0
// clip.cpp: gradient clipping by the joint L2 norm.
// Source: Pascanu, Mikolov, Bengio, 2013, "On the difficulty of training recurrent neural
// networks".
#include <cmath>

#include "optim/update.h"

namespace convscope {

double clip_gradient_norm(const std::vector<OptimParameter>& parameters, double max_norm) {
  CONVSCOPE_CHECK(max_norm > 0, "clip_gradient_norm", "expected max_norm > 0, got ", max_norm);
  // The table is kept between calls, so that a repeated training step does not reallocate it.
  thread_local UpdateTable table({});
  table.clear();
  for (const OptimParameter& parameter : parameters) table.add(parameter.variable);
  if (table.rows().empty()) return 0.0;
  const double norm = gradient_norm_kernel.get(table.device())(table);
  // Gradients with a norm that is not finite are left unchanged. The caller sees the norm in the
  // result.
  if (norm > max_norm && std::isfinite(norm)) {
    scale_gradients_kernel.get(table.device())(table, max_norm / norm);
  }
  return norm;
}

}  // namespace convscope
