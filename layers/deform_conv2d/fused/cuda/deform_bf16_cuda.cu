// SPDX-License-Identifier: Apache-2.0
// deform_bf16_cuda.cu: the table of compiled kernels for bf16, with the times measured for f16.
// Read next  deform_tiles.cuh
#include "layers/deform_conv2d/fused/cuda/deform_instances.cuh"

namespace convscope::deform_cuda {

std::span<const Instance> bf16_instances() {
  static const Instance kInstances[] = {
      Kernels<Tile<ByBF16, 4, 1, 64, 2, 1, 2>>().y({2.2, 5}).dw({2.3, 4}).instance,
      Kernels<Tile<ByBF16, 4, 1, 64, 4, 1>>().dx({1.57, 4}).instance,
      Kernels<Tile<ByBF16, 4, 1, 128, 3, 1>>().y({2.36, 5}).instance,
      Kernels<Tile<ByBF16, 2, 1, 64, 3, 2>>()
          .y({0.95, 3})
          .dx({1.8, 3})
          .dw({0.95, 3})
          .places()
          .instance,
      Kernels<Tile<ByBF16, 1, 1, 64, 2, 3>>().y({0.96, 3}).dx({3.2, 3}).dw({1.1, 3}).instance,
  };
  return kInstances;
}

}  // namespace convscope::deform_cuda
