// SPDX-License-Identifier: Apache-2.0
// measure_gpu_ceilings.h: the height of the roofline of the first CUDA device: large products of
// random numbers (a pointwise convolution, by cuBLAS) in f32, TF32 and bf16, a copy that is larger
// than the cache, and the time from one small kernel to the next.
#pragma once

#include "framework/machine/ceilings.h"

namespace convscope {

// About a second, and 1.2 GiB of the device's memory; with a `share` below 1 less of both (tests).
CONVSCOPE_API GpuCeilings measure_gpu_ceilings(double share = 1);

}  // namespace convscope
