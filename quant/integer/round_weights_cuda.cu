// SPDX-License-Identifier: Apache-2.0
// round_weights_cuda.cu: weights as codes on a GPU: it runs when the weights have changed, so a
// thread takes one number after the other.
#include "framework/cuda/launch.cuh"
#include "quant/integer/round_weights.h"

namespace convscope {
namespace {

__global__ void __launch_bounds__(kThreads)
    round_rows(const float* w, const double* steps, std::int64_t per_step, float low, float high,
               std::int64_t count, std::int8_t* codes) {
  for (std::int64_t i = global_thread(); i < count; i += global_threads()) {
    const auto s = static_cast<float>(steps[i / per_step]);
    codes[i] = static_cast<std::int8_t>(static_cast<int>(code_of(w[i], s, low, high)));
  }
}

void round_cuda(const Tensor& w, const Tensor& steps, const IntegerGrid& grid,
                const Tensor& codes) {
  launch(round_rows, grid_for(w.numel()), w.data<float>(), steps.data<double>(),
         w.numel() / steps.numel(), static_cast<float>(-grid.qn), static_cast<float>(grid.qp),
         w.numel(), codes.data<std::int8_t>());
}

}  // namespace
CONVSCOPE_KERNEL(round_weights_kernel, cuda, round_cuda)
}  // namespace convscope
