// SPDX-License-Identifier: Apache-2.0
// device_side_queue.h: a second queue of a device. Another library's work (NCCL) runs there,
// concurrently with the first queue.
//
// Usage   const SideQueues& queues = side_queues_kernel.get(device)();
//         void* queue = queues.make(device.index);
//         queues.fork(device.index, queue);  // waits for what the first queue holds now
//         ...                                // work for the side queue, and for the first one
//         queues.join(device.index, queue);  // later work in the first queue waits for it
#pragma once

#include "framework/kernel_slot.h"

namespace convscope {

struct SideQueues {
  void* (*make)(int index) = nullptr;  // CUDA: a cudaStream_t
  void (*free)(int index, void* queue) = nullptr;
  // fork: later work in the side queue waits for the present work in the first queue. join: later
  // work in the first queue waits for the present work in the side queue. A recording may contain
  // forks and joins; all side queues must be joined before it ends.
  void (*fork)(int index, void* queue) = nullptr;
  void (*join)(int index, void* queue) = nullptr;
  bool is_emulated = false;  // the CPU emulates the device: any number of processes may share it
};

extern CONVSCOPE_API KernelSlot<const SideQueues&()> side_queues_kernel;

}  // namespace convscope
