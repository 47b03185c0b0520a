// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_tma_f16_cuda.cu: the kernels of implicit_gemm_tma for f16.
// Read next  implicit_gemm_tma_instances.cuh
#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_instances.cuh"

namespace convscope::implicit_gemm_tma {

const Kernels& f16_kernels() { return kernels<Float16>(); }

}  // namespace convscope::implicit_gemm_tma
