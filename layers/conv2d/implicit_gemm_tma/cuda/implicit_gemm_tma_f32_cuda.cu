// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_tma_f32_cuda.cu: the kernels of implicit_gemm_tma that read f32 images directly:
// TMA rounds f32 to tf32, which the tensor cores multiply at half the rate of fp16. These kernels
// need no passes that make fp16 operands. The reduction dimension of the weights is innermost in
// both directions, so forward's kernels also compute backward_data.
// Read next  implicit_gemm_tma_instances.cuh, implicit_gemm_tma_f32_weights.cuh
#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_instances.cuh"

namespace convscope::implicit_gemm_tma {
namespace {

template <int... kGather>
Kernels f32_kernels(std::integer_sequence<int, kGather...>) {
  return {.gather = {{gather_kernel<GatherOf<float, kGather, false>>...},
                     {gather_kernel<GatherOf<float, kGather, false>>...}},
          .weight = {}};
}

}  // namespace

const Kernels& f32_kernels() {
  static const Kernels table = f32_kernels(std::make_integer_sequence<int, kGatherShapeCount>{});
  return table;
}

}  // namespace convscope::implicit_gemm_tma
