// SPDX-License-Identifier: Apache-2.0
// hold.cpp: keeps pruned weights constant.
#include "sparsity/hold.h"

namespace convscope {

constinit KernelSlot<void(const RestedTensor*, int)> rest_kernel{"rest"};

}  // namespace convscope
