// SPDX-License-Identifier: Apache-2.0
// mask_cpu.cpp: products of weights and masks, one tensor after the other; memory-bound.
#include "framework/ops/elementwise.h"
#include "sparsity/mask.h"

namespace convscope {
namespace {

void mask_cpu(const MaskedTensor* all, int count) {
  for (const MaskedTensor* a = all; a != all + count; ++a) {
    binary_kernel.get(Device{})(BinaryOp::mul, a->x, a->keep, a->y);
  }
}

}  // namespace
CONVSCOPE_KERNEL(mask_kernel, cpu, mask_cpu)
}  // namespace convscope
