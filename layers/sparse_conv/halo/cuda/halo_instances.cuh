// SPDX-License-Identifier: Apache-2.0
// halo_instances.cuh: the list of compiled kernels. Each element type has a file with its kernels.
#pragma once

#include <span>

#include "layers/sparse_conv/halo/cuda/halo_product.cuh"

namespace convscope::sparse_cuda {

struct HaloInstance {
  void (*kernel)(const HaloArgs) = nullptr;
  int depth = 0, columns = 0, threads = 0;
  int (*shared_bytes)(int entry_rows) = nullptr;
};

template <class V>
HaloInstance halo_instance() {
  return {halo_kernel<V>, V::kDepth, V::kColumns, V::kThreads, V::shared_bytes};
}

// The kernels for gathered rows of 16, 32 or 64 channels, each for 32 or 64 lanes (channels of the
// result) at once.
template <class Half, int kTerms>
std::span<const HaloInstance> halo_instances() {
  static const HaloInstance kInstances[] = {
      halo_instance<HaloVariant<Half, kTerms, 16, 32>>(),
      halo_instance<HaloVariant<Half, kTerms, 16, 64>>(),
      halo_instance<HaloVariant<Half, kTerms, 32, 32>>(),
      halo_instance<HaloVariant<Half, kTerms, 32, 64>>(),
      halo_instance<HaloVariant<Half, kTerms, 64, 32>>(),
      halo_instance<HaloVariant<Half, kTerms, 64, 64>>(),
  };
  return kInstances;
}

// f32_halo() has the kernels that compute f32 as three fp16 products. f16_halo() has those for f16,
// which also compute f32 as TF32 (one product of scaled fp16).
std::span<const HaloInstance> f32_halo();
std::span<const HaloInstance> f16_halo();
std::span<const HaloInstance> bf16_halo();

}  // namespace convscope::sparse_cuda
