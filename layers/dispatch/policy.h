// SPDX-License-Identifier: Apache-2.0
// policy.h: which algorithm an operator uses, for each direction.
#pragma once

#include <string>

#include "layers/dispatch/direction.h"

namespace convscope {

// Each entry is an algorithm's name, "auto" (lowest estimated time), "measure" (fastest when timed,
// remembered on disk), a list of such words or "check:a,b" (run both, compare, return a's result).
// A list "a,b,auto" selects the first that accepts the problem. See policy_text.h.
struct AlgorithmPolicy {
  std::string forward = "auto";
  std::string backward_data = "auto";
  std::string backward_weight = "auto";
  // Layout of the layer's images in a compiled step: "auto" (the layout with the lowest estimated
  // time), "nchw", or "nchw16c" (NCHW16c if the layer supports it).
  std::string layout = "auto";

  const std::string& of(Direction direction) const {
    return direction == Direction::forward         ? forward
           : direction == Direction::backward_data ? backward_data
                                                   : backward_weight;
  }
};

}  // namespace convscope
