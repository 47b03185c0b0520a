// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_tma_moments_tf32_cuda.cu: the forward of implicit_gemm_tma for tf32 with mean and
// spread of its channels.
// Read next  implicit_gemm_tma_moments.cuh
#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_instances.cuh"

namespace convscope::implicit_gemm_tma {

const MomentKernels& tf32_moment_kernels() { return moment_kernels<Float16, float>(); }

}  // namespace convscope::implicit_gemm_tma
