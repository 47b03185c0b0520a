// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_f16_cuda.cu: compiled kernels for f16.
// Read next  implicit_gemm_tiles.cuh
#include "layers/conv2d/implicit_gemm/cuda/implicit_gemm_instances.cuh"

namespace convscope::implicit_gemm {

std::span<const Instance> f16_instances() {
  static const Instance kInstances[] = {
      instance<Variant<Float16, Float16, 1, 2, 1, 256, 4, 1>>({0.91, 8.2}, {1.45, 1.5}),
      instance<Variant<Float16, Float16, 1, 2, 1, 192, 5, 1>>({0.69, 7.7}, {}),
      instance<Variant<Float16, Float16, 1, 2, 1, 128, 3, 2, 0>>({0.53, 6.0}, {0.71, 0.8}),
      instance<Variant<Float16, Float16, 1, 1, 2, 128, 5, 1>>({0.70, 6.7}, {1.26, 0.8}),
      instance<Variant<Float16, Float16, 1, 1, 2, 64, 4, 2, 0>>({0.41, 4.5}, {0.55, 1.5}),
      instance<Variant<Float16, Float16, 1, 1, 1, 64, 4, 3, 0>>({0.22, 3.7}, {0.33, 0.5}),
  };
  return kInstances;
}

}  // namespace convscope::implicit_gemm
