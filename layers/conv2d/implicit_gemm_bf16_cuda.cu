// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_bf16_cuda.cu: compiled kernels for bf16.
#include "layers/conv2d/implicit_gemm_instances.cuh"

namespace convscope::implicit_gemm {

std::span<const Instance> bf16_instances() {
  static const Instance kInstances[] = {
      instance<Variant<BFloat16, BFloat16, 1, 2, 1, 256, 4, 1>>(0.75),
      instance<Variant<BFloat16, BFloat16, 1, 2, 1, 128, 3, 2>>(0.45),
      instance<Variant<BFloat16, BFloat16, 1, 1, 2, 128, 5, 1>>(0.50),
      instance<Variant<BFloat16, BFloat16, 1, 1, 2, 64, 4, 2>>(0.28),
      instance<Variant<BFloat16, BFloat16, 1, 1, 1, 64, 4, 3>>(0.20),
  };
  return kInstances;
}

}  // namespace convscope::implicit_gemm
