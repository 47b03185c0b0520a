// SPDX-License-Identifier: Apache-2.0
// measure_peaks.h: measures this machine's roofline: peak arithmetic of the current instruction
// set, and the read and copy bandwidths of memory and caches.
#pragma once

#include <functional>

#include "framework/machine/peaks.h"

namespace convscope {

// Measures for a few seconds, with one thread and with all cores. Returns the best of many short
// tries: on a busy machine a peak may be too low, but not too high. Tests set `share` below 1 to
// use less time and memory. `cores` is the number of cores to use; 0 stands for all cores of this
// process.
CONVSCOPE_API CpuPeaks measure_cpu_peaks(double share = 1, int cores = 0);

// Returns stored peaks, or calls `before_measuring`, then measures and stores them.
CONVSCOPE_API CpuPeaks cpu_peaks(const std::function<void()>& before_measuring);

}  // namespace convscope
