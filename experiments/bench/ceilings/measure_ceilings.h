// SPDX-License-Identifier: Apache-2.0
// measure_ceilings.h: measures this machine's roofline: peak arithmetic of the current instruction
// set, and the read and copy bandwidths of memory and caches.
#pragma once

#include <functional>

#include "framework/machine/ceilings.h"

namespace convscope {

// Returns the best of many short tries with one thread and with all cores of this process, in a few
// seconds. On a busy machine a peak is too low, never too high. A `share` below 1 of the usual time
// and memory is for tests; so is a number of `cores` (0: this process's).
CONVSCOPE_API CpuCeilings measure_cpu_ceilings(double share = 1, int cores = 0);

// Returns stored peaks, or calls `before_measuring`, then measures and stores them.
CONVSCOPE_API CpuCeilings cpu_ceilings(const std::function<void()>& before_measuring);

}  // namespace convscope
