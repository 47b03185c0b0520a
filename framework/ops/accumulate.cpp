// SPDX-License-Identifier: Apache-2.0
// accumulate.cpp: adds one tensor to another (to += from). The backward pass sums the gradients of
// a variable with it.
#include "framework/ops/accumulate.h"

namespace convscope {

constinit KernelSlot<void(const Tensor&, const Tensor&)> accumulate_kernel{"accumulate"};

void accumulate(const Tensor& to, const Tensor& from) {
  CONVSCOPE_CHECK(to.shape() == from.shape() && to.dtype() == from.dtype(), "accumulate",
                  "expected a gradient ", to.str(), ", got ", from.str());
  accumulate_kernel.get(to.device())(to, from);
}

}  // namespace convscope
