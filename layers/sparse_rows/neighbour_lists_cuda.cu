// SPDX-License-Identifier: Apache-2.0
// neighbour_lists_cuda.cu: the maximum and the mean of lists of rows.
//
// Method    One thread computes one output element by walking along its list. Neighbouring threads
//           have neighbouring channels, so they read neighbouring elements of each row. A global
//           pool has few, long lists, so only few threads work, and the kernel is slow.
// Read next neighbour_lists_cpu.cpp, which processes all channels of a row at once
#include "framework/cuda/launch.cuh"
#include "layers/sparse_rows/neighbour_lists.h"

namespace convscope {
namespace {

using Index = std::int64_t;

struct Lists {
  const std::int32_t *begin, *at;
  explicit Lists(const NeighbourLists& lists)
      : begin(lists.begin.data<std::int32_t>()), at(lists.at.data<std::int32_t>()) {}
};

template <class T>
__global__ void max_kernel(const T* x, Lists lists, Index channels, Index count, T* y,
                           std::int32_t* arg) {
  for (Index i = global_thread(); i < count; i += global_threads()) {
    const Index row = i / channels, c = i - row * channels;
    T best{};
    std::int32_t argmax = -1;
    for (std::int32_t k = lists.begin[row]; k < lists.begin[row + 1]; ++k) {
      const T v = x[lists.at[k] * channels + c];
      if (argmax < 0 || v > best || (v != v && best == best)) {
        best = v;
        argmax = lists.at[k];
      }
    }
    y[i] = best;
    arg[i] = argmax;
  }
}

template <class T>
__global__ void mean_kernel(const T* x, Lists lists, Index channels, Index count, T* y) {
  for (Index i = global_thread(); i < count; i += global_threads()) {
    const Index row = i / channels, c = i - row * channels;
    const std::int32_t begin = lists.begin[row], end = lists.begin[row + 1];
    double sum = 0;
    for (std::int32_t k = begin; k < end; ++k) {
      sum += static_cast<double>(x[lists.at[k] * channels + c]);
    }
    y[i] = begin == end ? T{} : static_cast<T>(sum * (1.0 / static_cast<double>(end - begin)));
  }
}

template <class T>
__global__ void max_gradient_kernel(const T* dy, Lists by_input, const std::int32_t* arg,
                                    Index channels, Index count, T* dx) {
  for (Index i = global_thread(); i < count; i += global_threads()) {
    const Index row = i / channels, c = i - row * channels;
    double sum = 0;
    for (std::int32_t k = by_input.begin[row]; k < by_input.begin[row + 1]; ++k) {
      const Index from = by_input.at[k] * channels + c;
      if (arg[from] == row) sum += static_cast<double>(dy[from]);
    }
    dx[i] = static_cast<T>(sum);
  }
}

template <class T>
__global__ void mean_gradient_kernel(const T* dy, Lists by_output, Lists by_input, Index channels,
                                     Index count, T* dx) {
  for (Index i = global_thread(); i < count; i += global_threads()) {
    const Index row = i / channels, c = i - row * channels;
    double sum = 0;
    for (std::int32_t k = by_input.begin[row]; k < by_input.begin[row + 1]; ++k) {
      const std::int32_t list = by_input.at[k];
      sum += static_cast<double>(dy[list * channels + c]) /
             static_cast<double>(by_output.begin[list + 1] - by_output.begin[list]);
    }
    dx[i] = static_cast<T>(sum);
  }
}

template <class Body>
void with_type(const Tensor& x, const Body& body) {
  if (x.dtype() == DType::f64) return body(double{});
  body(float{});
}

void max_cuda(const Tensor& x, const NeighbourLists& by_output, const Tensor& y,
              const Tensor& arg) {
  with_type(x, [&](auto zero) {
    using T = decltype(zero);
    launch(max_kernel<T>, grid_for(y.numel()), x.data<T>(), Lists(by_output), x.dim(1), y.numel(),
           y.data<T>(), arg.data<std::int32_t>());
  });
}

void mean_cuda(const Tensor& x, const NeighbourLists& by_output, const Tensor& y) {
  with_type(x, [&](auto zero) {
    using T = decltype(zero);
    launch(mean_kernel<T>, grid_for(y.numel()), x.data<T>(), Lists(by_output), x.dim(1), y.numel(),
           y.data<T>());
  });
}

void max_gradient_cuda(const Tensor& dy, const NeighbourLists& by_input, const Tensor& arg,
                       const Tensor& dx) {
  with_type(dy, [&](auto zero) {
    using T = decltype(zero);
    launch(max_gradient_kernel<T>, grid_for(dx.numel()), dy.data<T>(), Lists(by_input),
           arg.data<std::int32_t>(), dx.dim(1), dx.numel(), dx.data<T>());
  });
}

void mean_gradient_cuda(const Tensor& dy, const PoolLists& lists, const Tensor& dx) {
  with_type(dy, [&](auto zero) {
    using T = decltype(zero);
    launch(mean_gradient_kernel<T>, grid_for(dx.numel()), dy.data<T>(), Lists(lists.by_output),
           Lists(lists.by_input), dx.dim(1), dx.numel(), dx.data<T>());
  });
}

}  // namespace

CONVSCOPE_KERNEL(list_max_kernel, cuda, max_cuda)
CONVSCOPE_KERNEL(list_mean_kernel, cuda, mean_cuda)
CONVSCOPE_KERNEL(list_max_gradient_kernel, cuda, max_gradient_cuda)
CONVSCOPE_KERNEL(list_mean_gradient_kernel, cuda, mean_gradient_cuda)

}  // namespace convscope
