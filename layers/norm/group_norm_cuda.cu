// SPDX-License-Identifier: Apache-2.0
// group_norm_cuda.cu: group norm on a GPU. A block takes one group of one image, whose elements
// are contiguous. In the backward pass, a block first adds the sums of one plane; a thread adds
// the sums of one channel over the images, in order. Sums are in double by block, so that two runs
// have the same bits.
#include "framework/cuda/launch.cuh"
#include "layers/norm/group_norm.h"

namespace convscope {
namespace {

template <class T>
__global__ void __launch_bounds__(kThreads)
    group_norm_groups(GroupNormSizes size, const T* x, const T* weight, const T* bias, double eps,
                      T* y, double* mean, double* inverse) {
  __shared__ double shared[32];
  const std::int64_t elements = size.channels / size.groups * size.pixels;
  const std::int64_t first = blockIdx.x * elements;
  const std::int64_t channel = blockIdx.x % size.groups * (size.channels / size.groups);
  const auto count = static_cast<double>(elements);
  const T shift = x[first];
  T sum = 0;
  for (std::int64_t i = threadIdx.x; i < elements; i += kThreads) sum += x[first + i] - shift;
  const double m = static_cast<double>(shift) + block_sum(static_cast<double>(sum), shared) / count;
  const T around = static_cast<T>(m);
  sum = 0;
  for (std::int64_t i = threadIdx.x; i < elements; i += kThreads) {
    const T d = x[first + i] - around;
    sum += d * d;
  }
  const double off = static_cast<double>(around) - m;
  const double variance = block_sum(static_cast<double>(sum), shared) / count - off * off;
  const double r = 1 / ::sqrt((variance < 0 ? 0 : variance) + eps);
  for (std::int64_t i = threadIdx.x; i < elements; i += kThreads) {
    const std::int64_t c = channel + i / size.pixels;
    const double factor = static_cast<double>(weight[c]) * r;
    y[first + i] = (x[first + i] - around) * static_cast<T>(factor) +
                   static_cast<T>(static_cast<double>(bias[c]) + factor * off);
  }
  if (mean == nullptr || threadIdx.x != 0) return;
  mean[blockIdx.x] = m;
  inverse[blockIdx.x] = r;
}

// Block n C + c adds dy and dy u of one plane.
template <class T>
__global__ void __launch_bounds__(kThreads)
    group_norm_plane_sums(GroupNormSizes size, const T* dy, const T* x, const double* mean,
                          const double* inverse, double* sums) {
  __shared__ double shared[32];
  const std::int64_t group = blockIdx.x / (size.channels / size.groups);
  const T around = static_cast<T>(mean[group]);
  const std::int64_t first = blockIdx.x * size.pixels;
  T sum = 0, sum_x = 0;
  for (std::int64_t i = threadIdx.x; i < size.pixels; i += kThreads) {
    sum += dy[first + i];
    sum_x += dy[first + i] * (x[first + i] - around);
  }
  const double total = block_sum(static_cast<double>(sum), shared);
  const double total_x = block_sum(static_cast<double>(sum_x), shared);
  if (threadIdx.x != 0) return;
  sums[blockIdx.x] = total;
  sums[size.n * size.channels + blockIdx.x] =
      (total_x + (static_cast<double>(around) - mean[group]) * total) * inverse[group];
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    group_norm_gradients(GroupNormSizes size, const T* dy, const T* x, const T* weight,
                         const double* mean, const double* inverse, const double* sums, T* dx) {
  __shared__ double shared[32];
  const std::int64_t width = size.channels / size.groups;
  const std::int64_t channel = blockIdx.x % size.groups * width;
  const std::int64_t plane = blockIdx.x * width;
  double g = 0, gu = 0;
  for (std::int64_t c = threadIdx.x; c < width; c += kThreads) {
    const auto w = static_cast<double>(weight[channel + c]);
    g += w * sums[plane + c];
    gu += w * sums[size.n * size.channels + plane + c];
  }
  g = block_sum(g, shared);
  gu = block_sum(gu, shared);
  const std::int64_t elements = width * size.pixels, first = blockIdx.x * elements;
  const auto count = static_cast<double>(elements);
  const double m = mean[blockIdx.x], r = inverse[blockIdx.x];
  const T around = static_cast<T>(m);
  const double slope = -r * r * gu / count;
  const T shift = static_cast<T>(-r * g / count + slope * (static_cast<double>(around) - m));
  for (std::int64_t i = threadIdx.x; i < elements; i += kThreads) {
    const auto w = static_cast<double>(weight[channel + i / size.pixels]);
    dx[first + i] = static_cast<T>(w * r) * dy[first + i] +
                    (static_cast<T>(slope) * (x[first + i] - around) + shift);
  }
}

// A thread adds the sums of one element of dbias (thread < channels) or dweight.
template <class T>
__global__ void __launch_bounds__(kThreads)
    group_norm_add_images(GroupNormSizes size, const double* sums, T* dweight, T* dbias) {
  for (std::int64_t i = global_thread(); i < 2 * size.channels; i += global_threads()) {
    const bool is_bias = i < size.channels;
    const std::int64_t c = is_bias ? i : i - size.channels;
    const double* const from = sums + (is_bias ? 0 : size.n * size.channels) + c;
    double sum = 0;
    for (std::int64_t n = 0; n < size.n; ++n) sum += from[n * size.channels];
    T* const to = is_bias ? dbias : dweight;
    if (to != nullptr) to[c] = static_cast<T>(sum);
  }
}

LaunchShape blocks_of(std::int64_t count) {
  return {.grid = dim3(static_cast<unsigned>(count)), .block = dim3(kThreads)};
}

template <class T>
T* data_or_null(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<T>() : nullptr;
}

template <class T>
void group_forward(const GroupNormArgs& a) {
  if (a.size.pixels == 0) return;
  launch(group_norm_groups<T>, blocks_of(a.size.n * a.size.groups), a.size, a.x.data<T>(),
         a.weight.data<T>(), a.bias.data<T>(), a.eps, a.y.data<T>(), data_or_null<double>(a.mean),
         data_or_null<double>(a.inverse));
}

template <class T>
void group_backward(const GroupNormGradientArgs& a) {
  const T *const dy = a.dy.data<T>(), *const x = a.x.data<T>();
  const double *const mean = a.mean.data<double>(), *const inverse = a.inverse.data<double>();
  double* const sums = a.sums.data<double>();
  launch(group_norm_plane_sums<T>, blocks_of(a.size.n * a.size.channels), a.size, dy, x, mean,
         inverse, sums);
  if (a.dx.defined()) {
    launch(group_norm_gradients<T>, blocks_of(a.size.n * a.size.groups), a.size, dy, x,
           a.weight.data<T>(), mean, inverse, sums, a.dx.data<T>());
  }
  launch(group_norm_add_images<T>, grid_for(2 * a.size.channels), a.size, sums,
         data_or_null<T>(a.dweight), data_or_null<T>(a.dbias));
}

void group_norm_cuda(const GroupNormArgs& a) {
  a.x.dtype() == DType::f64 ? group_forward<double>(a) : group_forward<float>(a);
}

void group_norm_gradient_cuda(const GroupNormGradientArgs& a) {
  a.x.dtype() == DType::f64 ? group_backward<double>(a) : group_backward<float>(a);
}

}  // namespace
CONVSCOPE_KERNEL(group_norm_kernel, cuda, group_norm_cuda)
CONVSCOPE_KERNEL(group_norm_gradient_kernel, cuda, group_norm_gradient_cuda)
}  // namespace convscope
