// SPDX-License-Identifier: Apache-2.0
// tile_f32_cuda.cu: compiled kernels for f32, by three products of fp16.
// Read next  tile_products.cuh
#include "layers/sparse_conv/shared/cuda/tile_products.cuh"

namespace convscope::sparse_cuda {

std::span<const SumsInstance> f32_sums() {
  static const SumsInstance kInstances[] = {
      sums_instance<Variant<Float16, float, 3, 4, 1, 16, 2, 1>>(),
      sums_instance<Variant<Float16, float, 3, 2, 1, 16, 3, 2>>(),
      sums_instance<Variant<Float16, float, 3, 1, 1, 16, 3, 3>>(),
      sums_instance<Variant<Float16, float, 3, 4, 1, 32, 2, 1>>(),
      sums_instance<Variant<Float16, float, 3, 2, 1, 32, 2, 2>>(),
      sums_instance<Variant<Float16, float, 3, 1, 1, 32, 3, 3>>(),
      sums_instance<Variant<Float16, float, 3, 2, 1, 64, 2, 2>>(),
      sums_instance<Variant<Float16, float, 3, 1, 1, 64, 3, 2>>(),
      sums_instance<Variant<Float16, float, 3, 2, 1, 128, 3, 1>>(),
      sums_instance<Variant<Float16, float, 3, 1, 1, 128, 2, 2>>(),
  };
  return kInstances;
}

std::span<const WeightsInstance> f32_weights() {
  static const WeightsInstance kInstances[] = {
      weights_instance<Variant<Float16, float, 3, 2, 1, 64, 2, 2>>(),
      weights_instance<Variant<Float16, float, 3, 1, 1, 64, 3, 2>>(),
      weights_instance<Variant<Float16, float, 3, 2, 1, 128, 3, 1>>(),
      weights_instance<Variant<Float16, float, 3, 1, 1, 128, 2, 2>>(),
  };
  return kInstances;
}

}  // namespace convscope::sparse_cuda
