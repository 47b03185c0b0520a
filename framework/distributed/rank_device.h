// SPDX-License-Identifier: Apache-2.0
// rank_device.h: one GPU for each process of a group.
#pragma once

#include <string>

#include "framework/device.h"
#include "framework/distributed/process_group.h"

namespace convscope {

// The GPU that the process takes, as CUDA_VISIBLE_DEVICES names it: the local_rank-th of those that
// `visible` (null: all) leaves. "" when it leaves fewer.
CONVSCOPE_API std::string gpu_of_rank(int local_rank, const char* visible);

// For `device` of type cuda: makes the process see that one alone (CUDA_VISIBLE_DEVICES), as device
// 0. Where each process of a host sees one of its own already, it stays so. All processes call it,
// before anything else asks for CUDA. An error of kind kUnavailable when a host has more processes
// than GPUs; the emulated GPU serves any number.
CONVSCOPE_API void take_device_of_rank(ProcessGroup& group, Device device);

}  // namespace convscope
