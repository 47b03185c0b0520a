// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_tma_tf32_cuda.cu: the kernels of implicit_gemm_tma for f32 images, with scaled f16
// operands and f32 results. backward_weight always stores f32 sums, so it uses the f16 kernels.
// Read next  implicit_gemm_tma_instances.cuh, implicit_gemm_tma_scaled.cuh
#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_instances.cuh"

namespace convscope::implicit_gemm_tma {

const Kernels& tf32_kernels() {
  static const Kernels table = with_gather<Float16, float>(f16_kernels());
  return table;
}

}  // namespace convscope::implicit_gemm_tma
