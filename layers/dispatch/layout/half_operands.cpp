// SPDX-License-Identifier: Apache-2.0
// half_operands.cpp: the registry entry of the kernels that make fp16 operands of products.
#include "layers/dispatch/layout/half_operands.h"

namespace convscope {

constinit KernelSlot<void(const Tensor& x, void* block)> pack_half_operands_kernel{
    "pack_half_operands"};

}  // namespace convscope
