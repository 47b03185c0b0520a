// SPDX-License-Identifier: Apache-2.0
// hold.h: keeps pruned weights constant. An optimiser changes every parameter, because momentum and
// weight decay act without a gradient. So after each training step, each pruned weight is set back
// to the value that it had when it was pruned, and its optimiser state is cleared. If a later mask
// keeps the weight again, its training continues from this value without momentum.
#pragma once

#include "framework/kernel_slot.h"
#include "framework/tensor.h"

namespace convscope {

// Sets value[i] = held[i] where keep[i] is 0. An undefined `held` counts as 0. All tensors are f32
// with the same number of elements.
struct RestedTensor {
  Tensor keep, held, value;
};
// Processes several tensors at once: a device launches one kernel for all of them.
extern CONVSCOPE_API KernelSlot<void(const RestedTensor* all, int count)> rest_kernel;

}  // namespace convscope
