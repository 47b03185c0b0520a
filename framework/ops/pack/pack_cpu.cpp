// SPDX-License-Identifier: Apache-2.0
// pack_cpu.cpp: copies on the CPU.
#include <cstring>

#include "framework/ops/pack/pack.h"

namespace convscope {
namespace {

template <bool kInto>
void copy_parts(const std::vector<Tensor>& parts, const Tensor& packed) {
  float* at = packed.data<float>();
  for (const Tensor& part : parts) {
    const auto bytes = static_cast<std::size_t>(part.size_bytes());
    if (bytes > 0) {
      kInto ? std::memcpy(at, part.raw_data(), bytes) : std::memcpy(part.raw_data(), at, bytes);
    }
    at += part.numel();
  }
}

void pack_cpu(const std::vector<Tensor>& parts, const Tensor& packed) {
  copy_parts<true>(parts, packed);
}
void unpack_cpu(const std::vector<Tensor>& parts, const Tensor& packed) {
  copy_parts<false>(parts, packed);
}

}  // namespace
CONVSCOPE_KERNEL(pack_kernel, cpu, pack_cpu)
CONVSCOPE_KERNEL(unpack_kernel, cpu, unpack_cpu)
}  // namespace convscope
