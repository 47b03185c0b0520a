// SPDX-License-Identifier: Apache-2.0
// tensor_kernels.h: kernels that Tensor itself uses, one per kind of device.
#pragma once

#include "framework/kernel_slot.h"
#include "framework/tensor.h"

namespace convscope {

// Sets every element to `value`, converted in the same way as by Tensor::to().
extern CONVSCOPE_API KernelSlot<void(const Tensor& to, double value)> fill_kernel;
// Converts between any two types; both tensors have the same number of elements. A conversion to
// integers saturates, and NaN becomes 0.
extern CONVSCOPE_API KernelSlot<void(const Tensor& from, const Tensor& to)> convert_kernel;

}  // namespace convscope
