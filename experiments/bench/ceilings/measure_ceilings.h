// SPDX-License-Identifier: Apache-2.0
// measure_ceilings.h: finds the height of this machine's roofline: peak arithmetic of the current
// instruction set, and how fast memory and caches are read and copied.
#pragma once

#include <functional>

#include "framework/machine/ceilings.h"

namespace convscope {

// The best of many short tries with one thread and with all cores of this process, a few seconds
// in all. On a busy machine a ceiling comes out too low, never too high. A `share` below 1 of the
// usual time, and of the memory, is for tests; so is a number of `cores` (0: this process's).
CONVSCOPE_API CpuCeilings measure_cpu_ceilings(double share = 1, int cores = 0);

// What is remembered, or else measures and remembers, after telling `before_measuring`.
CONVSCOPE_API CpuCeilings cpu_ceilings(const std::function<void()>& before_measuring);

}  // namespace convscope
