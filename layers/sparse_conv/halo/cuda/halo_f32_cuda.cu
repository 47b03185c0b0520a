// SPDX-License-Identifier: Apache-2.0
// halo_f32_cuda.cu: compiled kernels for f32, by three products of scaled fp16.
#include "layers/sparse_conv/halo/cuda/halo_instances.cuh"

namespace convscope::sparse_cuda {

std::span<const HaloInstance> f32_halo() { return halo_instances<Float16, 3>(); }

}  // namespace convscope::sparse_cuda
