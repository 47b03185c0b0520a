// SPDX-License-Identifier: Apache-2.0
// apply.h: applies an operation to variables.
#pragma once

#include <initializer_list>
#include <memory>
#include <span>

#include "framework/graph/emitter.h"

namespace convscope {

// Runs the operation now, and records it for the backward pass if an input needs a gradient. If an
// input is symbolic, adds the operation to the input's graph instead. Undefined variables at the
// end of `x` are left out: a bias that a layer does not have.
CONVSCOPE_API Variable apply(std::unique_ptr<Operation> operation, std::span<const Variable> x);
inline Variable apply(std::unique_ptr<Operation> operation, std::initializer_list<Variable> x) {
  return apply(std::move(operation), std::span<const Variable>(x.begin(), x.size()));
}

// Throws unless the values are f32 or f64, all of one type on one device.
CONVSCOPE_API void check_real_inputs(const Graph& graph, const Operation& operation);

}  // namespace convscope
