// SPDX-License-Identifier: Apache-2.0
// hold.h: keeps weights that are out as they are. An optimiser moves every parameter: momentum and
// weight decay go on without a gradient. So after each step the weights that are out are put back,
// and their optimiser state is cleared; a weight that returns starts from its old value, at rest.
#pragma once

#include "framework/kernel_slot.h"
#include "framework/tensor.h"

namespace convscope {

// value[i] = held[i] where keep[i] is 0; held undefined: 0. f32, same number of elements.
struct RestedTensor {
  Tensor keep, held, value;
};
// Of several tensors at once: a device launches one kernel for all of them.
extern CONVSCOPE_API KernelSlot<void(const RestedTensor* all, int count)> rest_kernel;

}  // namespace convscope
