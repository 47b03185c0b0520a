// SPDX-License-Identifier: Apache-2.0
// pack.cpp: concatenates many small tensors into one tensor, and splits that tensor again.
#include "framework/ops/pack/pack.h"

namespace convscope {

constinit KernelSlot<void(const std::vector<Tensor>&, const Tensor&)> pack_kernel{"pack"};
constinit KernelSlot<void(const std::vector<Tensor>&, const Tensor&)> unpack_kernel{"unpack"};

namespace {

void check(const char* name, const std::vector<Tensor>& parts, const Tensor& packed) {
  std::int64_t count = 0;
  for (const Tensor& part : parts) {
    CONVSCOPE_CHECK(part.dtype() == DType::f32 && part.device() == packed.device(), name,
                    "expected f32 parts on ", packed.device(), ", got ", part.str());
    count += part.numel();
  }
  CONVSCOPE_CHECK(packed.dtype() == DType::f32 && packed.numel() == count, name, "expected ", count,
                  " elements f32, as many as the parts have, got ", packed.str());
}

}  // namespace

void pack(const std::vector<Tensor>& parts, const Tensor& packed) {
  check("pack", parts, packed);
  if (packed.numel() > 0) pack_kernel.get(packed.device())(parts, packed);
}

void unpack(const Tensor& packed, const std::vector<Tensor>& parts) {
  check("unpack", parts, packed);
  if (packed.numel() > 0) unpack_kernel.get(packed.device())(parts, packed);
}

}  // namespace convscope
