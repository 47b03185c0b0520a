// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_tma_fp16x3_weight_cuda.cu: the kernels of backward_weight for f32 in full
// precision: two planes of dy and of x.
// Read next  implicit_gemm_tma_weight.cuh, implicit_gemm_tma_fp16x3_cuda.cu
#include <iterator>
#include <utility>

#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_run.h"
#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_weight.cuh"

namespace convscope::implicit_gemm_tma {
namespace {

template <int... kShape>
auto kernel_of(int shape, std::integer_sequence<int, kShape...>) {
  static constexpr void (*kKernels[])(WeightGather) = {
      weight_kernel<WeightVariant<Float16, kFp16x3WeightShapes[kShape].columns,
                                  kFp16x3WeightShapes[kShape].slots, 2>>...};
  return kKernels[shape];
}

}  // namespace

void (*fp16x3_weight_kernel(int shape))(WeightGather) {
  constexpr int kShapes = static_cast<int>(std::size(kFp16x3WeightShapes));
  return kernel_of(shape, std::make_integer_sequence<int, kShapes>{});
}

}  // namespace convscope::implicit_gemm_tma
