// SPDX-License-Identifier: Apache-2.0
// fused_relu.h: a ReLU, with or without an upper bound, in the kernel of the operation before it: a
// convolution applies the ReLU to its accumulators before storing them.
#pragma once

#include <limits>
#include <optional>

#include "framework/graph/emitter.h"

namespace convscope {

// Returns whether `op` is a ReLU.
CONVSCOPE_API bool is_relu(const Operation& op);

// Returns the upper bound of a ReLU: infinity for relu, 6 for relu6; nothing for other operations.
CONVSCOPE_API std::optional<float> relu_bound(const Operation& op);
// Returns the bound of a ReLU that kernels of convolution and batch norm may absorb, else nothing.
// On a GPU these kernels support relu only.
CONVSCOPE_API std::optional<float> fused_relu_bound(const Graph& graph, const Operation& op);
// Returns whether `op` adds two different values of one shape: the sum of a residual block.
CONVSCOPE_API bool adds_residual(const Graph& graph, const Operation& op);
// Returns " + relu" or " + relu6", which text() appends for an absorbed ReLU.
CONVSCOPE_API std::string fused_relu_text(float most);

// Emits the gradient of an absorbed ReLU: dy = dy where 0 < y < most, else 0.
CONVSCOPE_API void emit_relu_gradient(Emitter& emitter, ValueId y,
                                      float most = std::numeric_limits<float>::infinity());

}  // namespace convscope
