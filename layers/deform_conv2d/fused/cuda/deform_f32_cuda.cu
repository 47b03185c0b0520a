// SPDX-License-Identifier: Apache-2.0
// deform_f32_cuda.cu: compiled kernels for f32 through three products of fp16.
// Read next  deform_tiles.cuh
#include "layers/deform_conv2d/fused/cuda/deform_instances.cuh"

namespace convscope::deform_cuda {

std::span<const Instance> f32_instances() {
  static const Instance kInstances[] = {
      Kernels<Tile<ByF32, 4, 1, 64, 2, 1>>().y({2.5, 4}).dx({2.8, 4}).dw({2.65, 4}).instance,
      Kernels<Tile<ByF32, 2, 1, 64, 3, 1>>()
          .y({1.7, 3})
          .dx({2.6, 3})
          .dw({1.85, 3})
          .places()
          .instance,
      Kernels<Tile<ByF32, 1, 1, 64, 2, 2>>().y({1.4, 3}).dx({4.1, 3}).dw({1.45, 3}).instance,
  };
  return kInstances;
}

}  // namespace convscope::deform_cuda
