// SPDX-License-Identifier: Apache-2.0
// softmax_cuda.cu: softmax on a GPU. Where the numbers along the axis are adjacent, a warp adds
// them; elsewhere a thread does, and adjacent threads read adjacent numbers. The order of the sums
// depends only on the shape.
#include "framework/cuda/launch.cuh"
#include "layers/softmax/softmax.h"

namespace convscope {
namespace {

template <class T>
__device__ T warp_largest(T value) {
  for (int offset = 16; offset > 0; offset /= 2) {
    const T other = __shfl_xor_sync(kAllLanes, value, offset);
    value = other > value ? other : value;
  }
  return value;
}

// The threads of one list of numbers: a warp, or one thread.
template <bool kWarp>
struct ListTeam {
  SoftmaxSizes size;
  std::int64_t list, first, step, end;

  __device__ explicit ListTeam(const SoftmaxSizes& sizes) : size(sizes) {
    list = kWarp ? global_thread() / 32 : global_thread();
    const std::int64_t begin = list / size.inner * size.size * size.inner + list % size.inner;
    first = begin + (kWarp ? (threadIdx.x % 32) * size.inner : 0);
    step = kWarp ? 32 * size.inner : size.inner;
    end = begin + size.size * size.inner;
  }
  __device__ bool is_idle() const { return list >= size.outer * size.inner; }
  template <class T>
  __device__ static T sum(T value) {
    return kWarp ? warp_sum(value) : value;
  }
  template <class T>
  __device__ static T largest(T value) {
    return kWarp ? warp_largest(value) : value;
  }
};

template <bool kWarp, class T>
__global__ void __launch_bounds__(kThreads) softmax_lists(SoftmaxSizes size, const T* x, T* y) {
  const ListTeam<kWarp> team(size);
  if (team.is_idle()) return;  // whole warps
  T most = x[team.first < team.end ? team.first : team.end - size.inner];
  for (std::int64_t i = team.first; i < team.end; i += team.step) most = x[i] > most ? x[i] : most;
  most = team.largest(most);
  T sum = 0;
  for (std::int64_t i = team.first; i < team.end; i += team.step) {
    const T value = ::exp(x[i] - most);
    y[i] = value;
    sum += value;
  }
  sum = team.sum(sum);
  for (std::int64_t i = team.first; i < team.end; i += team.step) y[i] = y[i] / sum;
}

template <bool kWarp, class T>
__global__ void __launch_bounds__(kThreads)
    softmax_gradients(SoftmaxSizes size, const T* y, const T* dy, T* dx) {
  const ListTeam<kWarp> team(size);
  if (team.is_idle()) return;
  T sum = 0;
  for (std::int64_t i = team.first; i < team.end; i += team.step) sum += dy[i] * y[i];
  sum = team.sum(sum);
  for (std::int64_t i = team.first; i < team.end; i += team.step) dx[i] = y[i] * (dy[i] - sum);
}

LaunchShape shape_of(const SoftmaxSizes& size) {
  const std::int64_t threads = size.outer * size.inner * (size.inner == 1 ? 32 : 1);
  return {.grid = dim3(static_cast<unsigned>(ceil_div(threads, kThreads))),
          .block = dim3(kThreads)};
}

template <class T>
void softmax_typed(const SoftmaxSizes& size, const Tensor& x, const Tensor& y) {
  launch(size.inner == 1 ? softmax_lists<true, T> : softmax_lists<false, T>, shape_of(size), size,
         x.data<T>(), y.data<T>());
}

template <class T>
void softmax_gradient_typed(const SoftmaxSizes& size, const Tensor& y, const Tensor& dy,
                            const Tensor& dx) {
  launch(size.inner == 1 ? softmax_gradients<true, T> : softmax_gradients<false, T>, shape_of(size),
         size, y.data<T>(), dy.data<T>(), dx.data<T>());
}

void softmax_cuda(const SoftmaxSizes& size, const Tensor& x, const Tensor& y) {
  x.dtype() == DType::f64 ? softmax_typed<double>(size, x, y) : softmax_typed<float>(size, x, y);
}

void softmax_gradient_cuda(const SoftmaxSizes& size, const Tensor& y, const Tensor& dy,
                           const Tensor& dx) {
  dy.dtype() == DType::f64 ? softmax_gradient_typed<double>(size, y, dy, dx)
                           : softmax_gradient_typed<float>(size, y, dy, dx);
}

}  // namespace
CONVSCOPE_KERNEL(softmax_axis_kernel, cuda, softmax_cuda)
CONVSCOPE_KERNEL(softmax_axis_gradient_kernel, cuda, softmax_gradient_cuda)
}  // namespace convscope
