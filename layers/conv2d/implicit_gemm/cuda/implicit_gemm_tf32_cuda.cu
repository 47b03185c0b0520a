// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_tf32_cuda.cu: compiled kernels for tf32: f32 outside, one fp16 product.
// Read next  implicit_gemm_tiles.cuh
#include "layers/conv2d/implicit_gemm/cuda/implicit_gemm_tiles.cuh"

namespace convscope::implicit_gemm {

std::span<const Instance> tf32_instances() {
  static const Instance kInstances[] = {
      instance<Variant<Float16, float, 1, 2, 1, 256, 4, 1>>(),
      instance<Variant<Float16, float, 1, 2, 1, 192, 5, 1>>(),
      instance<Variant<Float16, float, 1, 2, 1, 128, 3, 2, 0>>(),
      instance<Variant<Float16, float, 1, 1, 2, 128, 5, 1>>(),
      instance<Variant<Float16, float, 1, 1, 2, 64, 4, 2, 0>>(),
      instance<Variant<Float16, float, 1, 1, 1, 64, 4, 3, 0>>(),
  };
  return kInstances;
}

}  // namespace convscope::implicit_gemm
