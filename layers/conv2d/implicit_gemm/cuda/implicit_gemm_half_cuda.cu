// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_half_cuda.cu: compiled kernels for f16 and bf16, with one table of tiles.
// Read next  implicit_gemm_tiles.cuh
#include "layers/conv2d/implicit_gemm/cuda/implicit_gemm_tiles.cuh"

namespace convscope::implicit_gemm {
namespace {

template <class Half>
std::span<const Instance> half_instances() {
  static const Instance kInstances[] = {
      instance<Variant<Half, Half, 1, 2, 1, 256, 4, 1>>(),
      instance<Variant<Half, Half, 1, 2, 1, 192, 5, 1>>(),
      instance<Variant<Half, Half, 1, 2, 1, 128, 3, 2, 0>>(),
      instance<Variant<Half, Half, 1, 1, 2, 128, 5, 1>>(),
      instance<Variant<Half, Half, 1, 1, 2, 64, 4, 2, 0>>(),
      instance<Variant<Half, Half, 1, 1, 1, 64, 4, 3, 0>>(),
  };
  return kInstances;
}

}  // namespace

std::span<const Instance> f16_instances() { return half_instances<Float16>(); }
std::span<const Instance> bf16_instances() { return half_instances<BFloat16>(); }

}  // namespace convscope::implicit_gemm
