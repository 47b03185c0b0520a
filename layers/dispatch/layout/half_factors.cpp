// SPDX-License-Identifier: Apache-2.0
// half_factors.cpp: the place of the kernels that make factors of products of halves.
#include "layers/dispatch/layout/half_factors.h"

namespace convscope {

constinit KernelSlot<void(const Tensor& x, void* block)> pack_half_factors_kernel{
    "pack_half_factors"};

}  // namespace convscope
