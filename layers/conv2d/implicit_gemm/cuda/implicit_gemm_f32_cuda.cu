// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_f32_cuda.cu: compiled kernels for f32 through three products of halves.
// Read next  implicit_gemm_tiles.cuh
#include "layers/conv2d/implicit_gemm/cuda/implicit_gemm_instances.cuh"

namespace convscope::implicit_gemm {

std::span<const Instance> f32_instances() {
  static const Instance kInstances[] = {
      instance<Variant<Float16, float, 3, 2, 1, 128, 3, 1, 0>>({1.35, 4.5}, {1.58, 3.5}),
      instance<Variant<Float16, float, 3, 2, 1, 192, 2, 1>>({1.97, 6.5}, {}),
      instance<Variant<Float16, float, 3, 1, 2, 128, 2, 1>>({1.76, 5.5}, {2.07, 2.2}),
      instance<Variant<Float16, float, 3, 1, 2, 64, 2, 2>>({0.96, 4.0}, {1.05, 4.5}),
      instance<Variant<Float16, float, 3, 1, 1, 64, 3, 2, 0>>({0.51, 3.0}, {0.63, 4.0}),
  };
  return kInstances;
}

}  // namespace convscope::implicit_gemm
