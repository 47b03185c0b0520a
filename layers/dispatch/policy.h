// SPDX-License-Identifier: Apache-2.0
// policy.h: which algorithm an operator uses, for each direction.
#pragma once

#include <optional>
#include <string>

#include "framework/activation_layout.h"
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

  // Returns the milliseconds to add to the estimated time in a layout: 0, or more than any layer
  // takes if another layout is preferred. Returns nothing if the policy excludes the layout.
  std::optional<double> penalty_ms(const ImageLayouts& images) const {
    constexpr double kAvoided = 1e6;
    if (images == ActivationLayout::nchw) return layout == "nchw16c" ? kAvoided : 0;
    return layout == "nchw" ? std::nullopt : std::optional(0.0);
  }
};

}  // namespace convscope
