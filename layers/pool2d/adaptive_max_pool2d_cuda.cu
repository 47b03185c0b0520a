// SPDX-License-Identifier: Apache-2.0
// adaptive_max_pool2d_cuda.cu: a thread takes one window, and in the backward pass one pixel, which
// adds the gradients of the windows that chose it, in reading order.
#include "framework/cuda/launch.cuh"
#include "layers/pool2d/adaptive_max_pool2d.h"

namespace convscope {
namespace {

template <class T>
__global__ void __launch_bounds__(kThreads)
    adaptive_max_windows(AdaptiveAxis rows, AdaptiveAxis columns, const T* x, T* y,
                         std::int32_t* taps, std::int64_t count) {
  for (std::int64_t at = global_thread(); at < count; at += global_threads()) {
    const std::int64_t row = at / columns.out, plane = row / rows.out;
    const T* const image = x + plane * rows.in * columns.in;
    const AdaptiveAxis::Range down = rows.window(row - plane * rows.out);
    const AdaptiveAxis::Range across = columns.window(at - row * columns.out);
    std::int64_t tap = down.begin * columns.in + across.begin;
    T best = image[tap];
    for (std::int64_t i = down.begin; i < down.end; ++i) {
      for (std::int64_t j = across.begin; j < across.end; ++j) {
        const T value = image[i * columns.in + j];
        if (value > best || value != value) {
          best = value;
          tap = i * columns.in + j;
        }
      }
    }
    y[at] = best;
    if (taps != nullptr) taps[at] = static_cast<std::int32_t>(tap);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    adaptive_max_gradients(AdaptiveAxis rows, AdaptiveAxis columns, const T* dy,
                           const std::int32_t* taps, T* dx, std::int64_t count) {
  for (std::int64_t at = global_thread(); at < count; at += global_threads()) {
    const std::int64_t row = at / columns.in, plane = row / rows.in;
    const std::int64_t i = row - plane * rows.in, j = at - row * columns.in;
    const AdaptiveAxis::Range down = rows.windows_of(i), across = columns.windows_of(j);
    T sum = 0;
    for (std::int64_t p = down.begin; p < down.end; ++p) {
      for (std::int64_t q = across.begin; q < across.end; ++q) {
        const std::int64_t from = (plane * rows.out + p) * columns.out + q;
        if (taps[from] == i * columns.in + j) sum += dy[from];
      }
    }
    dx[at] = sum;
  }
}

template <class T>
void adaptive_max_typed(const Tensor& x, const Tensor& y, const Tensor& taps) {
  launch(adaptive_max_windows<T>, grid_for(y.numel()), AdaptiveAxis{x.dim(2), y.dim(2)},
         AdaptiveAxis{x.dim(3), y.dim(3)}, x.data<T>(), y.data<T>(),
         taps.defined() ? taps.data<std::int32_t>() : nullptr, y.numel());
}

template <class T>
void adaptive_max_gradient_typed(const Tensor& dy, const Tensor& taps, const Tensor& dx) {
  launch(adaptive_max_gradients<T>, grid_for(dx.numel()), AdaptiveAxis{dx.dim(2), dy.dim(2)},
         AdaptiveAxis{dx.dim(3), dy.dim(3)}, dy.data<T>(), taps.data<std::int32_t>(), dx.data<T>(),
         dx.numel());
}

void adaptive_max_cuda(const Tensor& x, const Tensor& y, const Tensor& taps) {
  x.dtype() == DType::f64 ? adaptive_max_typed<double>(x, y, taps)
                          : adaptive_max_typed<float>(x, y, taps);
}

void adaptive_max_gradient_cuda(const Tensor& dy, const Tensor& taps, const Tensor& dx) {
  dy.dtype() == DType::f64 ? adaptive_max_gradient_typed<double>(dy, taps, dx)
                           : adaptive_max_gradient_typed<float>(dy, taps, dx);
}

}  // namespace
CONVSCOPE_KERNEL(adaptive_max_pool_kernel, cuda, adaptive_max_cuda)
CONVSCOPE_KERNEL(adaptive_max_pool_gradient_kernel, cuda, adaptive_max_gradient_cuda)
}  // namespace convscope
