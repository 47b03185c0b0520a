// SPDX-License-Identifier: Apache-2.0
// hold.cpp: keeps weights that are out as they are.
#include "sparsity/hold.h"

namespace convscope {

constinit KernelSlot<void(const RestedTensor*, int)> rest_kernel{"rest"};

}  // namespace convscope
