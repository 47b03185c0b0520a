// SPDX-License-Identifier: Apache-2.0
// activation_rule.h: an elementwise activation y = f(x) that is one file.
//
// The file is in layers/activations/rules/ and defines a struct whose name ends in Activation. The
// build lists all such structs in <convscope/activations.h>, and everything else comes from this
// list: the layer type, the operation with its gradient, the loops in f64, the vector loops in f32
// and the CUDA kernels. An activation has these members:
//
//   kName, kDoc     type in configs, one line for users
//   value<Math>(x)  f(x)
//   slope<Math>(x)  df/dx at x; the gradient is dx = dy slope(x)
//
// f(0) must be 0, so that unused lanes of NCHW16c images stay 0. `Math` is the arithmetic of a
// kernel: Math::Value is float or double. number(x) rounds a double to this type, sigmoid(x) =
// 1 / (1 + exp(-x)), choose(condition, a, b) = condition ? a : b without a branch.
#pragma once

#include <cstdint>

#include "framework/host_device.h"

namespace convscope {

template <class... Activations>
struct ActivationList {};

// Calls body.template operator()<Activation>() for the activation at `index` of the list.
template <class... Activations, class Body>
void visit_activation(ActivationList<Activations...>, int index, const Body& body) {
  int at = 0;
  ((at++ == index ? body.template operator()<Activations>() : void()), ...);
}

}  // namespace convscope
