// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_tma_bf16_cuda.cu: the kernels of implicit_gemm_tma for bf16.
// Read next  implicit_gemm_tma_instances.cuh
#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_instances.cuh"

namespace convscope::implicit_gemm_tma {

const Kernels& bf16_kernels() { return kernels<BFloat16>(); }

}  // namespace convscope::implicit_gemm_tma
