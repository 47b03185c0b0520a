// SPDX-License-Identifier: Apache-2.0
// accumulate.h: adds one tensor to another (to += from). The backward pass sums the gradients of a
// variable with it.
#pragma once

#include "framework/kernel_slot.h"
#include "framework/tensor.h"

namespace convscope {

// Adds `from` to `to`. The two tensors have the same shape, dtype (f32 or f64) and device.
CONVSCOPE_API void accumulate(const Tensor& to, const Tensor& from);

extern CONVSCOPE_API KernelSlot<void(const Tensor& to, const Tensor& from)> accumulate_kernel;

}  // namespace convscope
