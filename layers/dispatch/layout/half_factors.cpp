// SPDX-License-Identifier: Apache-2.0
// half_factors.cpp: the registry entry of the kernels that make fp16 operands of products.
#include "layers/dispatch/layout/half_factors.h"

namespace convscope {

constinit KernelSlot<void(const Tensor& x, void* block)> pack_half_factors_kernel{
    "pack_half_factors"};

}  // namespace convscope
