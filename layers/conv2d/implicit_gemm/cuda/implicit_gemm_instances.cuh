// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_instances.cuh: the compiled kernels of implicit_gemm_tiles.cuh, by kind of factors.
// They are spread over four files because each takes a while to compile.
// Read next  implicit_gemm_tiles.cuh
#pragma once

#include <cstddef>
#include <span>

#include "layers/conv2d/implicit_gemm/cuda/implicit_gemm_tiles.cuh"

namespace convscope::implicit_gemm {

inline constexpr std::size_t kMostStages = 5;

// What one multiprocessor takes, fitted to an H200: `step` for each step of a tile, `around` for
// its beginning and end. Only their ratios matter: they choose among the tiles.
struct TileTime {
  double step = 1, around = 1;
};

struct Instance {
  int rows, columns;  // of a block's tile
  unsigned threads;
  std::size_t shared_bytes;  // of gather; backward_weight has rows of the depth behind it
  int blocks;                // that share a multiprocessor
  TileTime gather_us, weight_us;
  void (*gather)(const Gather);
  void (*weight)(const WeightGather);  // null: the tile's columns do not divide the threads

  std::size_t weight_bytes() const {
    return shared_bytes + (kMostStages + 1) * kBlockDepth * sizeof(DepthRow);
  }
};

template <class V>
inline Instance instance(TileTime gather_us, TileTime weight_us) {
  Instance out{V::kTileRows, V::kTileColumns, V::kThreads,      V::kSharedBytes, V::kBlocks,
               gather_us,    weight_us,       gather_kernel<V>, nullptr};
  if constexpr (V::kThreads % (V::kTileColumns / kPieceHalves) == 0) out.weight = weight_kernel<V>;
  return out;
}

std::span<const Instance> f32_instances();   // three products of halves
std::span<const Instance> tf32_instances();  // one product of halves with 10 bits of mantissa
std::span<const Instance> f16_instances();
std::span<const Instance> bf16_instances();

}  // namespace convscope::implicit_gemm
