// SPDX-License-Identifier: Apache-2.0
// tile_instances.cuh: the tiles that the kernels are compiled for. Each element type has a file
// that lists its tiles.
#pragma once

#include <span>

#include "layers/sparse_conv/shared/cuda/tile_products.cuh"

namespace convscope::sparse_cuda {

struct SumsInstance {
  void (*kernel)(const SumsArgs) = nullptr;
  int rows = 0, columns = 0, threads = 0, blocks = 1;
  std::size_t stage_bytes = 0;

  std::size_t shared_bytes(int entry_rows, int taps) const {
    return stage_bytes +
           sizeof(int) * (static_cast<std::size_t>(entry_rows) * static_cast<std::size_t>(rows) +
                          static_cast<std::size_t>(taps) + 1);
  }
};
struct WeightsInstance {
  void (*kernel)(const WeightsArgs) = nullptr;
  int rows = 0, columns = 0, threads = 0, blocks = 1;
  std::size_t stage_bytes = 0;
  int ring = 1;  // steps whose entries are in shared memory

  std::size_t shared_bytes(int ring_rows) const {
    return stage_bytes + kMaxUnits * sizeof(unsigned short) +
           sizeof(int) * static_cast<std::size_t>(ring * (ring_rows + 1) * kUnit);
  }
};

template <class V>
SumsInstance sums_instance() {
  return {sums_kernel<V>, V::kTileRows,   V::kTileColumns, static_cast<int>(V::kThreads),
          V::kBlocks,     V::kSharedBytes};
}
template <class V>
WeightsInstance weights_instance() {
  return {weights_kernel<V>, V::kTileRows,    V::kTileColumns, static_cast<int>(V::kThreads),
          V::kBlocks,        V::kSharedBytes, 2 * V::kAhead};
}

// The functions f32_*() return the kernels that compute f32 as three fp16 products. f16_*() return
// those for f16, which also compute f32 as TF32 (one product of scaled fp16).
std::span<const SumsInstance> f32_sums();
std::span<const SumsInstance> f16_sums();
std::span<const SumsInstance> bf16_sums();
std::span<const WeightsInstance> f32_weights();
std::span<const WeightsInstance> f16_weights();
std::span<const WeightsInstance> bf16_weights();

// Lists for each number of columns the tiles of 256, 128 and 64 sites.
template <class Half>
std::span<const SumsInstance> one_product_sums() {
  static const SumsInstance kInstances[] = {
      sums_instance<Variant<Half, Half, 1, 4, 1, 16, 3, 1>>(),
      sums_instance<Variant<Half, Half, 1, 2, 1, 16, 4, 2>>(),
      sums_instance<Variant<Half, Half, 1, 1, 1, 16, 4, 4>>(),
      sums_instance<Variant<Half, Half, 1, 4, 1, 32, 3, 1>>(),
      sums_instance<Variant<Half, Half, 1, 2, 1, 32, 4, 2>>(),
      sums_instance<Variant<Half, Half, 1, 1, 1, 32, 4, 4>>(),
      sums_instance<Variant<Half, Half, 1, 4, 1, 64, 4, 1>>(),
      sums_instance<Variant<Half, Half, 1, 2, 1, 64, 4, 2>>(),
      sums_instance<Variant<Half, Half, 1, 1, 1, 64, 4, 3>>(),
      sums_instance<Variant<Half, Half, 1, 4, 1, 128, 4, 1>>(),
      sums_instance<Variant<Half, Half, 1, 2, 1, 128, 3, 2>>(),
      sums_instance<Variant<Half, Half, 1, 1, 1, 128, 3, 2>>(),
  };
  return kInstances;
}

template <class Half>
std::span<const WeightsInstance> one_product_weights() {
  static const WeightsInstance kInstances[] = {
      weights_instance<Variant<Half, Half, 1, 4, 1, 64, 4, 1>>(),
      weights_instance<Variant<Half, Half, 1, 2, 1, 64, 4, 2>>(),
      weights_instance<Variant<Half, Half, 1, 1, 1, 64, 4, 3>>(),
      weights_instance<Variant<Half, Half, 1, 4, 1, 128, 4, 1>>(),
      weights_instance<Variant<Half, Half, 1, 2, 1, 128, 3, 2>>(),
      weights_instance<Variant<Half, Half, 1, 1, 1, 128, 3, 2>>(),
  };
  return kInstances;
}

}  // namespace convscope::sparse_cuda
