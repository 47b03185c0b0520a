// SPDX-License-Identifier: Apache-2.0
// pack.h: many small tensors into one, side by side, and back: such as the running statistics of
// all batch norm layers, which travel as one. Allocates nothing, and a device may record it.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/kernel_slot.h"
#include "framework/tensor.h"

namespace convscope {

// f32, all on one device; `packed` [n] has as many elements as all of `parts` together.
CONVSCOPE_API void pack(const std::vector<Tensor>& parts, const Tensor& packed);
CONVSCOPE_API void unpack(const Tensor& packed, const std::vector<Tensor>& parts);

extern CONVSCOPE_API KernelSlot<void(const std::vector<Tensor>&parts, const Tensor&packed)>
    pack_kernel, unpack_kernel;

}  // namespace convscope
