// SPDX-License-Identifier: Apache-2.0
// rank_device.h: one GPU for each process of a group.
#pragma once

#include <string>

#include "framework/device.h"
#include "framework/distributed/process_group.h"

namespace convscope {

// The GPU that a process takes, as CUDA_VISIBLE_DEVICES names it: the local_rank-th of those that
// `visible` (null: all) leaves. "" when it leaves fewer.
CONVSCOPE_API std::string gpu_of_rank(int local_rank, const char* visible);

// Makes this process see its GPU alone (CUDA_VISIBLE_DEVICES), as device 0, or none where the host
// has fewer than processes. Where each process of a host sees one of its own already, it stays so.
// All processes call it, right after they have met: before anything asks for CUDA.
CONVSCOPE_API void take_device_of_rank(ProcessGroup& group);

// Once it is known what they train on: an error of kind kUnavailable when `device` is a GPU and
// this process has none. The emulated GPU serves any number of processes.
CONVSCOPE_API void check_device_of_rank(const ProcessGroup& group, Device device);

}  // namespace convscope
