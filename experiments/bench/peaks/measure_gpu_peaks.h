// SPDX-License-Identifier: Apache-2.0
// measure_gpu_peaks.h: measures the roofline of the first CUDA device. It times large products
// of random numbers (a pointwise convolution, by cuBLAS) in f32, TF32 and bf16, a copy larger than
// the cache, and the gap between two small kernels.
#pragma once

#include "framework/machine/peaks.h"

namespace convscope {

// Needs about a second and 1.2 GiB of device memory. Tests set `share` below 1 to need less time
// and memory.
CONVSCOPE_API GpuPeaks measure_gpu_peaks(double share = 1);

}  // namespace convscope
