// SPDX-License-Identifier: Apache-2.0
// host_device.h: marks small functions that both CPU and CUDA kernels use.
#pragma once

#if defined(__CUDACC__)
#define CONVSCOPE_HOST_DEVICE __host__ __device__
#else
#define CONVSCOPE_HOST_DEVICE
#endif
