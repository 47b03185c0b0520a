// SPDX-License-Identifier: Apache-2.0
// bias_gradient_cuda.cu: the sum over all axes but that of the channels.
// Read next  bias_gradient_cpu.cpp; framework/cuda/reduce.cuh
#include "framework/cuda/reduce.cuh"
#include "layers/conv2d/bias_gradient.h"

namespace convscope {
namespace {

void bias_gradient_cuda(const Tensor& dy, const Tensor& db, bool accumulate) {
  sum_on_cuda(dy, 0b1101u, db, accumulate);
}

}  // namespace
CONVSCOPE_KERNEL(conv2d_bias_gradient_kernel, cuda, bias_gradient_cuda)
}  // namespace convscope
