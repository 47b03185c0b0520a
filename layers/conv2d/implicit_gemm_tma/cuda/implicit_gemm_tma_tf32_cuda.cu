// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_tma_tf32_cuda.cu: the kernels of implicit_gemm_tma for f32 images: scaled factors
// of f16, results of f32. backward_weight leaves sums of f32 anyway, so it has those of f16.
// Read next  implicit_gemm_tma_instances.cuh, implicit_gemm_tma_scaled.cuh
#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_instances.cuh"

namespace convscope::implicit_gemm_tma {

const Kernels& tf32_kernels() {
  static const Kernels table = with_gather<Float16, float>(f16_kernels());
  return table;
}

}  // namespace convscope::implicit_gemm_tma
