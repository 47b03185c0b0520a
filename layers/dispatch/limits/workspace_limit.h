// SPDX-License-Identifier: Apache-2.0
// workspace_limit.h: refuses a problem whose workspace would be far larger than its operands.
//
// Some algorithms copy rows of an image with zero padding into panels; with stride s, each row is
// split into s phases. Paddings, dilations and strides that are far larger than the image would
// take gigabytes for operands of some KiB. Algorithms without panels test the border for each tap
// instead.
#pragma once

#include "framework/parallel.h"
#include "layers/dispatch/algorithm.h"

namespace convscope {

// Returns the limit in bytes. It grows with the size of the operands. Its constant part suffices
// for panels of some hundred KiB for each thread, even if the operands are small.
template <class Problem>
double most_workspace(const Problem& problem) {
  constexpr double kMiB = 1024 * 1024;
  return (32 + 4.0 * num_threads()) * kMiB + 64 * problem.nominal_bytes();
}

// Calls supports() of an algorithm, and also refuses problems above most_workspace().
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
