// SPDX-License-Identifier: Apache-2.0
// device_side_queue.h: a second queue of a device, for the work of another library (NCCL) that goes
// on beside the first one.
//
// Usage   const SideQueues& queues = side_queues_kernel.get(device)();
//         void* queue = queues.make(device.index);
//         queues.fork(device.index, queue);  // behind what the first queue holds by now
//         ...                                // work for the side queue, and for the first one
//         queues.join(device.index, queue);  // what follows in the first queue finds it done
#pragma once

#include "framework/kernel_slot.h"

namespace convscope {

struct SideQueues {
  void* (*make)(int index) = nullptr;  // CUDA: a cudaStream_t
  void (*free)(int index, void* queue) = nullptr;
  // What the side queue gets from now on waits for all that the first one holds by now. And the
  // other way round. Both may be recorded; a recording ends with all side queues joined.
  void (*fork)(int index, void* queue) = nullptr;
  void (*join)(int index, void* queue) = nullptr;
  bool is_emulated = false;  // the device is, by the CPU: any number of processes may have it
};

extern CONVSCOPE_API KernelSlot<const SideQueues&()> side_queues_kernel;

}  // namespace convscope
