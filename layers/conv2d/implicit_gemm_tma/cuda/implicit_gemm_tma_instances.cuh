// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_tma_instances.cuh: the kernels of one element type, in the order of kGatherShapes
// and kWeightShapes. Each type has its own file that includes this one, so that the types compile
// in parallel.
// Read next  implicit_gemm_tma_gather.cuh, implicit_gemm_tma_weight.cuh
#pragma once

#include <iterator>
#include <utility>

#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_run.h"
#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_weight.cuh"

namespace convscope::implicit_gemm_tma {

template <class Half, int kShape, bool kBackward, class Out = Half>
using GatherOf =
    GatherVariant<Half, kGatherShapes[kShape].rows / 128, kGatherShapes[kShape].columns,
                  kGatherShapes[kShape].blocks, kGatherShapes[kShape].chunk, kBackward, Out>;
template <class Half, int kShape>
using WeightOf = WeightVariant<Half, kWeightShapes[kShape].columns, kWeightShapes[kShape].slots>;

template <class Half, int... kGather, int... kWeight>
Kernels kernels(std::integer_sequence<int, kGather...>, std::integer_sequence<int, kWeight...>) {
  return {.gather = {{gather_kernel<GatherOf<Half, kGather, false>>...},
                     {gather_kernel<GatherOf<Half, kGather, true>>...}},
          .weight = {weight_kernel<WeightOf<Half, kWeight>>...}};
}

template <class Half>
const Kernels& kernels() {
  static const Kernels table =
      kernels<Half>(std::make_integer_sequence<int, kGatherShapeCount>{},
                    std::make_integer_sequence<int, static_cast<int>(std::size(kWeightShapes))>{});
  return table;
}

// Returns `table` with the kernels of forward and backward_data that store Out.
template <class Half, class Out, int... kGather>
Kernels with_gather(Kernels table, std::integer_sequence<int, kGather...>) {
  ((table.gather[0][kGather] = gather_kernel<GatherOf<Half, kGather, false, Out>>,
    table.gather[1][kGather] = gather_kernel<GatherOf<Half, kGather, true, Out>>),
   ...);
  return table;
}
template <class Half, class Out>
Kernels with_gather(const Kernels& table) {
  return with_gather<Half, Out>(table, std::make_integer_sequence<int, kGatherShapeCount>{});
}

}  // namespace convscope::implicit_gemm_tma
