// SPDX-License-Identifier: Apache-2.0
// hard_swish.h: swish with a piecewise linear sigmoid, which needs no exponential.
//
//   y = x min(max(x + 3, 0), 6) / 6
//   dy/dx = 0 for x <= -3, 1 for x >= 3, else (2 x + 3) / 6
//
// Source: Howard et al. 2019, "Searching for MobileNetV3", arXiv 1905.02244.
#pragma once

#include "layers/activations/activation_rule.h"

namespace convscope {

struct HardSwishActivation {
  static constexpr const char* kName = "hard_swish";
  static constexpr const char* kDoc = "x min(max(x + 3, 0), 6) / 6";

  template <class Math>
  CONVSCOPE_HOST_DEVICE static typename Math::Value value(typename Math::Value x) {
    using Value = typename Math::Value;
    const Value three = Math::number(3), sixth = Math::number(1.0 / 6);
    const Value middle = x * (x + three) * sixth;
    return Math::choose(x >= three, x, Math::choose(x <= -three, Math::number(0), middle));
  }
  template <class Math>
  CONVSCOPE_HOST_DEVICE static typename Math::Value slope(typename Math::Value x) {
    using Value = typename Math::Value;
    const Value three = Math::number(3), half = Math::number(0.5), third = Math::number(1.0 / 3);
    const Value middle = x * third + half;
    return Math::choose(x >= three, Math::number(1),
                        Math::choose(x <= -three, Math::number(0), middle));
  }
};

}  // namespace convscope
