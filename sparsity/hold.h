// SPDX-License-Identifier: Apache-2.0
// hold.h: keeps weights that are out as they are. An optimiser moves every parameter: momentum and
// weight decay go on without a gradient. So after each step the weights that are out are put back,
// and their optimiser state is cleared; a weight that returns starts from its old value, at rest.
#pragma once

#include "framework/kernel_slot.h"
#include "framework/tensor.h"

namespace convscope {

// w[i] = held[i] where keep[i] is 0. f32, same number of elements.
CONVSCOPE_API void put_back(const Tensor& keep, const Tensor& held, const Tensor& w);
// state[i] = 0 where keep[i] is 0.
CONVSCOPE_API void clear_masked(const Tensor& keep, const Tensor& state);

extern CONVSCOPE_API KernelSlot<void(const Tensor& keep, const Tensor& held, const Tensor& w)>
    put_back_kernel;
extern CONVSCOPE_API KernelSlot<void(const Tensor& keep, const Tensor& state)> clear_masked_kernel;

}  // namespace convscope
