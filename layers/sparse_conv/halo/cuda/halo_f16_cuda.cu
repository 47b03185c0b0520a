// SPDX-License-Identifier: Apache-2.0
// halo_f16_cuda.cu: compiled kernels that multiply once in fp16: for f16, and for f32 as TF32.
#include "layers/sparse_conv/halo/cuda/halo_instances.cuh"

namespace convscope::sparse_cuda {

std::span<const HaloInstance> f16_halo() { return halo_instances<Float16, 1>(); }

}  // namespace convscope::sparse_cuda
