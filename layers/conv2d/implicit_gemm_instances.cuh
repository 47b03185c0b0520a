// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_instances.cuh: the compiled kernels of implicit_gemm_tiles.cuh, by kind of factors.
// They are spread over three files because each takes a while to compile.
#pragma once

#include <cstddef>
#include <span>

#include "layers/conv2d/implicit_gemm_tiles.cuh"

namespace convscope::implicit_gemm {

inline constexpr std::size_t kMostStages = 5;

struct Instance {
  int rows, columns;  // of a block's tile
  unsigned threads;
  std::size_t stage_bytes;  // shared memory without the tables
  double step_us;           // that one multiprocessor takes for one step of one tile
  void (*gather)(const Gather);
  void (*weight)(const WeightGather);  // f16: those of tf32

  std::size_t gather_bytes() const {
    return stage_bytes + std::size_t{kMostBlocks} * kBlockPieces * sizeof(int2);
  }
  std::size_t weight_bytes() const {
    return stage_bytes + (kMostStages + 1) * kBlockDepth * sizeof(DepthRow);
  }
};

template <class V>
constexpr Instance instance(double step_us) {
  return {V::kTileRows, V::kTileColumns,  V::kThreads,     V::kSharedBytes,
          step_us,      gather_kernel<V>, weight_kernel<V>};
}

std::span<const Instance> f32_instances();   // three products of halves
std::span<const Instance> tf32_instances();  // one product of halves with 10 bits of mantissa
std::span<const Instance> f16_instances();
std::span<const Instance> bf16_instances();

}  // namespace convscope::implicit_gemm
