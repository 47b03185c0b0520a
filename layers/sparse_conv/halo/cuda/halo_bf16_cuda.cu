// SPDX-License-Identifier: Apache-2.0
// halo_bf16_cuda.cu: compiled kernels for bf16.
#include "layers/sparse_conv/halo/cuda/halo_instances.cuh"

namespace convscope::sparse_cuda {

std::span<const HaloInstance> bf16_halo() { return halo_instances<BFloat16, 1>(); }

}  // namespace convscope::sparse_cuda
