// SPDX-License-Identifier: Apache-2.0
// tensor_kernels.h: what Tensor itself computes, for each kind of device.
#pragma once

#include "framework/kernel_slot.h"
#include "framework/tensor.h"

namespace convscope {

// Every element becomes `value`, converted as by Tensor::to.
extern CONVSCOPE_API KernelSlot<void(const Tensor& to, double value)> fill_kernel;
// Same number of elements, any two types. To integers: saturates, NaN becomes 0.
extern CONVSCOPE_API KernelSlot<void(const Tensor& from, const Tensor& to)> convert_kernel;

}  // namespace convscope
