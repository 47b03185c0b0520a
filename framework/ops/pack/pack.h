// SPDX-License-Identifier: Apache-2.0
// pack.h: concatenates many small tensors into one tensor, and splits that tensor again. For
// example, the running statistics of all batch norm layers are sent as one tensor. The functions
// allocate nothing, so a device may record them.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/kernel_slot.h"
#include "framework/tensor.h"

namespace convscope {

// Concatenates f32 tensors on one device. `packed` [n] gets the elements of all `parts`; n is their
// total number.
CONVSCOPE_API void pack(const std::vector<Tensor>& parts, const Tensor& packed);
CONVSCOPE_API void unpack(const Tensor& packed, const std::vector<Tensor>& parts);

extern CONVSCOPE_API KernelSlot<void(const std::vector<Tensor>&parts, const Tensor&packed)>
    pack_kernel, unpack_kernel;

}  // namespace convscope
