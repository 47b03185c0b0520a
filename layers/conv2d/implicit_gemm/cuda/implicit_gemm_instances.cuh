// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_instances.cuh: the compiled kernels of implicit_gemm_tiles.cuh, by operand type.
// They are spread over four files because each type takes a while to compile.
// Read next  implicit_gemm_tiles.cuh
#pragma once

#include <cstddef>
#include <span>

#include "layers/conv2d/implicit_gemm/cuda/implicit_gemm_tiles.cuh"

namespace convscope::implicit_gemm {

inline constexpr std::size_t kMaxStages = 5;

struct Instance {
  int rows, columns;  // of a block's tile
  unsigned threads;
  std::size_t shared_bytes;  // of the gather kernel; backward_weight adds rows of the reduction
  int blocks;                // blocks that share an SM
  TileTime gather_us, weight_us;
  void (*gather)(const Gather);
  void (*weight)(const WeightGather);  // null: the tile's columns do not divide the threads

  std::size_t weight_bytes() const {
    return shared_bytes + (kMaxStages + 1) * kBlockDepth * sizeof(DepthRow);
  }
};

template <class V>
inline Instance instance(TileTime gather_us, TileTime weight_us) {
  Instance out{V::kTileRows, V::kTileColumns, V::kThreads,      V::kSharedBytes, V::kBlocks,
               gather_us,    weight_us,       gather_kernel<V>, nullptr};
  if constexpr (V::kThreads % (V::kTileColumns / kPieceElements) == 0)
    out.weight = weight_kernel<V>;
  return out;
}

// The pass that adds parts, measured on one H200: its microseconds, the bytes that it reads per
// microsecond, and the elements that it stores per microsecond. The last rate depends on how it
// stores: elements in pairs, single elements, the scattered outputs of a phase, or weights.
inline constexpr double kPartsUs = 1.7, kPartBytesPerUs = 2.5e6;
inline constexpr double kPairedPerUs = 2.5e6, kSinglePerUs = 0.37e6, kScatteredPerUs = 0.33e6;
inline constexpr double kWeightPerUs = 0.17e6;
inline double stored_us(std::int64_t outputs, int phases, bool paired) {
  return static_cast<double>(outputs) / (phases > 1 ? kScatteredPerUs
                                         : paired   ? kPairedPerUs
                                                    : kSinglePerUs);
}

std::span<const Instance> f32_instances();   // three fp16 products
std::span<const Instance> tf32_instances();  // one fp16 product with 10 bits of mantissa
std::span<const Instance> f16_instances();
std::span<const Instance> bf16_instances();

}  // namespace convscope::implicit_gemm
