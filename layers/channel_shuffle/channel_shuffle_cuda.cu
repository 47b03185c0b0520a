// SPDX-License-Identifier: Apache-2.0
// channel_shuffle_cuda.cu: a thread copies one element; memory-bound.
#include "framework/cuda/launch.cuh"
#include "layers/channel_shuffle/channel_shuffle.h"

namespace convscope {
namespace {

template <class T>
__global__ void __launch_bounds__(kThreads)
    shuffle_elements(std::int64_t channels, std::int64_t groups, std::int64_t pixels, const T* x,
                     T* y, std::int64_t count) {
  for (std::int64_t at = global_thread(); at < count; at += global_threads()) {
    const std::int64_t plane = at / pixels, c = plane % channels;
    const std::int64_t from = plane - c + c % groups * (channels / groups) + c / groups;
    y[at] = x[from * pixels + at - plane * pixels];
  }
}

template <class T>
void shuffle_typed(std::int64_t channels, std::int64_t groups, const Tensor& x, const Tensor& y) {
  launch(shuffle_elements<T>, grid_for(x.numel()), channels, groups, x.dim(2) * x.dim(3),
         x.data<T>(), y.data<T>(), x.numel());
}

void channel_shuffle_cuda(std::int64_t channels, std::int64_t groups, const Tensor& x,
                          const Tensor& y) {
  x.dtype() == DType::f64 ? shuffle_typed<double>(channels, groups, x, y)
                          : shuffle_typed<float>(channels, groups, x, y);
}

}  // namespace
CONVSCOPE_KERNEL(channel_shuffle_kernel, cuda, channel_shuffle_cuda)
}  // namespace convscope
