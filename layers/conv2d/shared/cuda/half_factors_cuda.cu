// SPDX-License-Identifier: Apache-2.0
// half_factors_cuda.cu: functions with which compiled steps make the fp16 operands of a product.
// Read next  half_factors.cuh
#include "framework/tensor.h"
#include "layers/conv2d/shared/cuda/half_factors.cuh"

namespace convscope {
namespace {

void pack_cuda(const Tensor& x, void* block) {
  half_tiles::pack_half_factors(x.data<float>(), x.numel(), block);
}

}  // namespace
CONVSCOPE_KERNEL(pack_half_factors_kernel, cuda, pack_cuda)
}  // namespace convscope
