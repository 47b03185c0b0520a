// SPDX-License-Identifier: Apache-2.0
// workspace_limit.h: refuses a problem whose workspace would be far larger than its operands.
//
// Panels hold rows of an image with the zeros of its padding, and a phase for each column of a
// stride. For paddings, dilations and strides that reach far beyond the image they would take
// gigabytes beside operands of some KiB. Other algorithms test the border for each tap.
#pragma once

#include "framework/parallel.h"
#include "layers/dispatch/card.h"

namespace convscope {

// Threads have panels of some hundred KiB, whatever the operands are.
template <class Problem>
double most_workspace(const Problem& problem) {
  constexpr double kMiB = 1024 * 1024;
  return (32 + 4.0 * num_threads()) * kMiB + 64 * problem.nominal_bytes();
}

// supports() of an algorithm with that limit.
template <auto supports, auto workspace_bytes, class Problem>
Support with_workspace_limit(const Problem& problem, Direction direction) {
  Support out = supports(problem, direction);
  if (!out.yes || problem.is_empty()) return out;
  const auto bytes = static_cast<double>(workspace_bytes(problem, direction));
  if (bytes <= most_workspace(problem)) return out;
  return Support::no(
      cat("expects strides, dilations and paddings of about the image's size, because its panels "
          "would take ",
          bytes / (1024.0 * 1024 * 1024), " GiB here"));
}

}  // namespace convscope
