// SPDX-License-Identifier: Apache-2.0
// eager_op.h: a layer that runs eagerly inside a compiled step.
#pragma once

#include <memory>

#include "framework/graph/operation.h"
#include "layers/module.h"

namespace convscope {

// Returns an operation that runs module.forward() and its backward pass, in memory of the
// allocator. The inputs are those of the module and eager_inputs(module): the parameters that need
// a gradient.
std::unique_ptr<Operation> make_eager_op(Module& module);
std::vector<Variable> eager_inputs(const Module& module);

}  // namespace convscope
