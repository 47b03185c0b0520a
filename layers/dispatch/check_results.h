// SPDX-License-Identifier: Apache-2.0
// check_results.h: the results of check:a,b in this process. execute() compares the outputs of two
// algorithms and records the difference. A run prints the results at its end:
//
//   c1 forward: winograd_f4x3 against direct, largest difference 3.1e-06 of 1.2 (bound 2e-05), 469
//   calls
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/export.h"
#include "layers/dispatch/direction.h"

namespace convscope {

// One comparison: the largest difference of two elements, and the largest magnitude of all
// elements, by which readers judge the difference.
struct Difference {
  double difference = 0, value = 0;
  double bound = -1;  // upper bound of `difference`; below 0: nothing was compared

  // Replaces *this by `other` if the difference of `other` is a larger share of its bound.
  CONVSCOPE_API void take_worse(const Difference& other);
};

struct CheckResult {
  std::string layer;  // "": no layer
  Direction direction = Direction::forward;
  std::string first, second;
  std::int64_t calls = 0;
  Difference worst;  // the call that came nearest to its bound

  CONVSCOPE_API std::string text() const;
};

// Adds a call to the stored result that has the same layer, direction and algorithm names.
CONVSCOPE_API void note_check(const CheckResult& call);
// Returns all results, in the order of their first call.
CONVSCOPE_API std::vector<CheckResult> check_results();
CONVSCOPE_API void forget_check_results();

}  // namespace convscope
