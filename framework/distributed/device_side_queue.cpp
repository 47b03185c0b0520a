// SPDX-License-Identifier: Apache-2.0
// device_side_queue.cpp: a second queue of a device.
#include "framework/distributed/device_side_queue.h"

namespace convscope {

constinit KernelSlot<const SideQueues&()> side_queues_kernel{"side_queues"};

}  // namespace convscope
