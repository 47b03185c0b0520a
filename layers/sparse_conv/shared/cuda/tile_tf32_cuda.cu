// SPDX-License-Identifier: Apache-2.0
// tile_tf32_cuda.cu: compiled kernels for f32 as TF32: one product of scaled halves, which have
// TF32's 11 bits.
// Read next  tile_instances.cuh
#include "layers/sparse_conv/shared/cuda/tile_instances.cuh"

namespace convscope::sparse_cuda {

std::span<const SumsInstance> tf32_sums() { return one_product_sums<Float16, float>(); }

}  // namespace convscope::sparse_cuda
