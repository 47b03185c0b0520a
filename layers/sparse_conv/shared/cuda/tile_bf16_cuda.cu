// SPDX-License-Identifier: Apache-2.0
// tile_bf16_cuda.cu: compiled kernels for bf16.
// Read next  tile_products.cuh
#include "layers/sparse_conv/shared/cuda/tile_products.cuh"

namespace convscope::sparse_cuda {

std::span<const SumsInstance> bf16_sums() { return one_product_sums<BFloat16>(); }
std::span<const WeightsInstance> bf16_weights() { return one_product_weights<BFloat16>(); }

}  // namespace convscope::sparse_cuda
