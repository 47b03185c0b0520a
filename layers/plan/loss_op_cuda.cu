// SPDX-License-Identifier: Apache-2.0
// loss_op_cuda.cu: counts the correct predictions of a batch on a GPU, and scales the gradient of
// the loss.
#include "framework/cuda/launch.cuh"
#include "layers/plan/loss_op.h"

namespace convscope {
namespace {

// Uses one block, because batches are small.
__global__ void __launch_bounds__(kThreads)
    count_equal(const std::int32_t* a, const std::int32_t* b, std::int64_t count,
                std::int32_t* out) {
  __shared__ int scratch[32];
  int equal = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += kThreads) equal += a[i] == b[i] ? 1 : 0;
  const int total = block_sum(equal, scratch);
  if (threadIdx.x == 0) *out = total;
}

__global__ void multiply_by(const double* factor, float* x, std::int64_t count) {
  const auto by = static_cast<float>(*factor);
  for (std::int64_t i = global_thread(); i < count; i += global_threads()) x[i] *= by;
}

void multiply_by_cuda(const double* factor, const Tensor& x) {
  launch(multiply_by, grid_for(x.numel()), factor, x.data<float>(), x.numel());
}

void count_equal_cuda(const Tensor& predicted, const Tensor& labels, const Tensor& out) {
  launch(count_equal, {.grid = dim3(1), .block = dim3(kThreads)}, predicted.data<std::int32_t>(),
         labels.data<std::int32_t>(), labels.numel(), out.data<std::int32_t>());
}

}  // namespace
CONVSCOPE_KERNEL(multiply_by_kernel, cuda, multiply_by_cuda)
CONVSCOPE_KERNEL(count_equal_kernel, cuda, count_equal_cuda)
}  // namespace convscope
