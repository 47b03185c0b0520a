// SPDX-License-Identifier: Apache-2.0
// policy.h: which algorithm a heavy layer uses, for each direction.
#pragma once

#include <string>

#include "layers/dispatch/direction.h"

namespace convscope {

// Each entry: an algorithm's name, "auto" (lowest estimated time), "measure" (fastest when timed,
// remembered on disk), a list of such words "a,b,auto" (the first that accepts the problem) or
// "check:a,b" (run both, compare, return a's result). See policy_text.h.
struct AlgorithmPolicy {
  std::string forward = "auto";
  std::string backward_data = "auto";
  std::string backward_weight = "auto";
  // Of its images in a planned step: "auto" (where it pays), "nchw", or "blocked" (where the layer
  // can).
  std::string layout = "auto";

  const std::string& of(Direction direction) const {
    return direction == Direction::forward         ? forward
           : direction == Direction::backward_data ? backward_data
                                                   : backward_weight;
  }
};

}  // namespace convscope
