// SPDX-License-Identifier: Apache-2.0
// int8_small_net.cpp: pointers to the kernels that run a small network on int8 values in one
// launch.
#include "layers/conv2d/int8_small_net.h"

namespace convscope {

constinit KernelSlot<void(const SmallNet&)> small_net_kernel{kSmallNet};
constinit KernelSlot<void(const SmallNetStage&, const std::int8_t*, unsigned*)>
    small_net_pack_kernel{"int8_small_net_pack"};

}  // namespace convscope
