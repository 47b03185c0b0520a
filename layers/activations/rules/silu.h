// SPDX-License-Identifier: Apache-2.0
// silu.h: the sigmoid linear unit, also called swish.
//
//   y = x sigmoid(x),  dy/dx = s + x s (1 - s) with s = sigmoid(x)
//
// Source: Elfwing, Uchibe, Doya 2017, "Sigmoid-weighted linear units for neural network function
// approximation in reinforcement learning", arXiv 1702.03118.
#pragma once

#include "layers/activations/activation_rule.h"

namespace convscope {

struct SiluActivation {
  static constexpr const char* kName = "silu";
  static constexpr const char* kDoc = "x / (1 + exp(-x)), also called swish";

  template <class Math>
  CONVSCOPE_HOST_DEVICE static typename Math::Value value(typename Math::Value x) {
    return x * Math::sigmoid(x);
  }
  template <class Math>
  CONVSCOPE_HOST_DEVICE static typename Math::Value slope(typename Math::Value x) {
    const typename Math::Value s = Math::sigmoid(x);
    return s + x * s * (Math::number(1) - s);
  }
};

}  // namespace convscope
