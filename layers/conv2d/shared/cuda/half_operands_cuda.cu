// SPDX-License-Identifier: Apache-2.0
// half_operands_cuda.cu: functions with which compiled steps make the fp16 operands of a product.
// Read next  half_operands.cuh
#include "framework/tensor.h"
#include "layers/conv2d/shared/cuda/half_operands.cuh"

namespace convscope {
namespace {

void pack_cuda(const Tensor& x, void* block) {
  half_tiles::pack_half_operands(x.data<float>(), x.numel(), block);
}

}  // namespace
CONVSCOPE_KERNEL(pack_half_operands_kernel, cuda, pack_cuda)
}  // namespace convscope
