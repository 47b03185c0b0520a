// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_tma_moments_tf32_cuda.cu: forward kernels of implicit_gemm_tma for tf32 that also
// compute mean and spread of y's channels.
// Read next  implicit_gemm_tma_moments.cuh
#include <utility>

#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_gather.cuh"
#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_run.h"

namespace convscope::implicit_gemm_tma {
namespace {

// Returns null for narrow shapes: there the batch norm reads y itself.
template <int kShape>
constexpr auto moment_kernel() -> void (*)(Gather) {
  constexpr GatherShape kOf = kGatherShapes[kShape];
  if constexpr (kOf.columns < 32) {
    return nullptr;
  } else {
    return gather_kernel<GatherVariant<Float16, kOf.rows / 128, kOf.columns, kOf.blocks, kOf.chunk,
                                       false, float, 1, true>>;
  }
}
template <int... kShapes>
MomentKernels moment_kernels(std::integer_sequence<int, kShapes...>) {
  return {.gather = {moment_kernel<kShapes>()...}};
}

}  // namespace

const MomentKernels& tf32_moment_kernels() {
  static const MomentKernels table =
      moment_kernels(std::make_integer_sequence<int, kGatherShapeCount>{});
  return table;
}

}  // namespace convscope::implicit_gemm_tma
