// SPDX-License-Identifier: Apache-2.0
// rank_device.h: assigns one GPU to each process of a group.
#pragma once

#include <string>

#include "framework/device.h"
#include "framework/distributed/process_group.h"

namespace convscope {

// Returns the GPU of a process in the notation of CUDA_VISIBLE_DEVICES: entry number local_rank of
// `visible`, or of all GPUs if `visible` is null. Returns "" when there are fewer entries.
CONVSCOPE_API std::string gpu_of_rank(int local_rank, const char* visible);

// Makes only this process's GPU visible (CUDA_VISIBLE_DEVICES), as device 0. Where the host has
// fewer GPUs than processes, no GPU is visible. Changes nothing where each process of a host
// already sees a separate GPU. All processes call it right after joining, before any use of CUDA.
CONVSCOPE_API void take_device_of_rank(ProcessGroup& group);

// Throws kUnavailable when `device` is a GPU and this process has no GPU. Call it when the training
// device is known. The emulated GPU serves any number of processes.
CONVSCOPE_API void check_device_of_rank(const ProcessGroup& group, Device device);

}  // namespace convscope
