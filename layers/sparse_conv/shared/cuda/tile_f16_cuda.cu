// SPDX-License-Identifier: Apache-2.0
// tile_f16_cuda.cu: compiled kernels for f16.
// Read next  tile_products.cuh
#include "layers/sparse_conv/shared/cuda/tile_products.cuh"

namespace convscope::sparse_cuda {

std::span<const SumsInstance> f16_sums() { return one_product_sums<Float16>(); }
std::span<const WeightsInstance> f16_weights() { return one_product_weights<Float16>(); }

}  // namespace convscope::sparse_cuda
