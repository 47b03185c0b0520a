// SPDX-License-Identifier: Apache-2.0
// device_side_queue.h: a second queue of a device. Another library's work (NCCL) runs there,
// concurrently with the first queue.
//
// Usage   const SideQueues& queues = side_queues_kernel.get(device)();
//         void* queue = queues.make(device.index);
//         queues.fork(device.index, queue);  // `queue` waits for the first queue's present work
//         ...                                // queue work in `queue` and in the first queue
//         queues.join(device.index, queue);  // later work in the first queue waits for `queue`
#pragma once

#include "framework/kernel_slot.h"

namespace convscope {

struct SideQueues {
  void* (*make)(int index) = nullptr;  // CUDA: a cudaStream_t
  void (*free)(int index, void* queue) = nullptr;
  // fork(): work that is queued later in the side queue waits for all present work in the first
  // queue. join(): work that is queued later in the first queue waits for all present work in the
  // side queue. A recording may contain forks and joins; all side queues must be joined before it
  // ends.
  void (*fork)(int index, void* queue) = nullptr;
  void (*join)(int index, void* queue) = nullptr;
  bool is_emulated = false;  // the CPU emulates the device: any number of processes may share it
};

extern CONVSCOPE_API KernelSlot<const SideQueues&()> side_queues_kernel;

}  // namespace convscope
