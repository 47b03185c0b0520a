// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_f32_cuda.cu: compiled kernels for f32 through three fp16 products.
// Read next  implicit_gemm_tiles.cuh
#include "layers/conv2d/implicit_gemm/cuda/implicit_gemm_tiles.cuh"

namespace convscope::implicit_gemm {

std::span<const Instance> f32_instances() {
  static const Instance kInstances[] = {
      instance<Variant<Float16, float, 3, 2, 1, 128, 3, 1, 0>>(),
      instance<Variant<Float16, float, 3, 2, 1, 192, 2, 1>>(),
      instance<Variant<Float16, float, 3, 1, 2, 128, 2, 1>>(),
      instance<Variant<Float16, float, 3, 1, 2, 64, 2, 2>>(),
      instance<Variant<Float16, float, 3, 1, 1, 64, 3, 2, 0>>(),
  };
  return kInstances;
}

}  // namespace convscope::implicit_gemm
