// SPDX-License-Identifier: Apache-2.0
// int8_gemm_u8_cuda.cu: compiled kernels for images of u8 codes.
// Read next  int8_gemm_tiles.cuh
#include "layers/conv2d/int8/int8_gemm/cuda/int8_gemm_instances.cuh"

namespace convscope::int8 {

std::span<const ByteInstance> unsigned_byte_instances() { return byte_instances_of<false>(); }

}  // namespace convscope::int8
