// SPDX-License-Identifier: Apache-2.0
// softmax_cross_entropy_cuda.cu: softmax, cross-entropy and their gradient on a GPU. A warp
// processes a row; adjacent lanes have adjacent classes.
//
// Numerics  As on the CPU, exp of x - max is computed in T and summed in double: first in each
//           lane, then by a tree over the lanes. A label outside of [0,K) causes no read and makes
//           the row's loss NaN.
#include <cmath>
#include <limits>

#include "framework/cuda/launch.cuh"
#include "framework/ops/softmax_cross_entropy.h"

namespace convscope {
namespace {

constexpr unsigned kRowsPerBlock = 8;

__device__ float exp_of(float x) { return ::expf(x); }
__device__ double exp_of(double x) { return ::exp(x); }

// Returns the larger of two numbers; NaN counts as the largest.
template <class T>
__device__ T larger(T a, T b) {
  return b > a || b != b ? b : a;
}

// With at most 32 kMax classes, a row remains in registers.
template <int kMax, class T>
__global__ void __launch_bounds__(32 * kRowsPerBlock)
    short_softmax_rows(const T* x, const std::int32_t* labels, T* y, T* losses, std::int64_t rows,
                       int k) {
  const int lane = static_cast<int>(threadIdx.x);
  const std::int64_t n = static_cast<std::int64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.y;
  const bool here = n < rows;
  const int end = here ? k : 0;
  x += n * k;
  y += n * k;
  const std::int32_t label = here && losses != nullptr ? labels[n] : -1;
  T e[kMax];
  T most = -std::numeric_limits<T>::infinity();
#pragma unroll
  for (int i = 0; i < kMax; ++i) {
    e[i] = lane + 32 * i < end ? x[lane + 32 * i] : -std::numeric_limits<T>::infinity();
  }
#pragma unroll
  for (int i = 0; i < kMax; ++i) most = larger(most, e[i]);
  for (int offset = 16; offset > 0; offset /= 2) {
    most = larger(most, __shfl_xor_sync(kAllLanes, most, offset));
  }
  double total = 0;
#pragma unroll
  for (int i = 0; i < kMax; ++i) {
    e[i] = lane + 32 * i < end ? exp_of(e[i] - most) : T{0};
    total += static_cast<double>(e[i]);
  }
  total = warp_sum(total);
  const T inverse = static_cast<T>(1 / total);
#pragma unroll
  for (int i = 0; i < kMax; ++i) {
    if (lane + 32 * i < end) y[lane + 32 * i] = e[i] * inverse;
  }
  if (here && losses != nullptr && lane == 0) {
    double loss = std::numeric_limits<double>::quiet_NaN();
    if (label >= 0 && label < k) {
      loss = ::log(total) - (static_cast<double>(x[label]) - static_cast<double>(most));
    }
    losses[n] = static_cast<T>(loss);
  }
}

template <class T>
__global__ void softmax_rows(const T* x, const std::int32_t* labels, T* y, T* losses,
                             std::int64_t rows, std::int64_t k) {
  const unsigned lane = threadIdx.x;
  const std::int64_t n = static_cast<std::int64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.y;
  const bool here = n < rows;
  const std::int64_t end = here ? k : 0;  // a warp after the last row adds nothing
  x += n * k;
  y += n * k;
  T most = lane < end ? x[lane] : -std::numeric_limits<T>::infinity();
  for (std::int64_t j = lane + 32; j < end; j += 32) most = larger(most, x[j]);
  for (int offset = 16; offset > 0; offset /= 2) {
    most = larger(most, __shfl_xor_sync(kAllLanes, most, offset));
  }
  double total = 0;
  for (std::int64_t j = lane; j < end; j += 32) {
    const T e = exp_of(x[j] - most);
    y[j] = e;
    total += static_cast<double>(e);
  }
  total = warp_sum(total);
  const T inverse = static_cast<T>(1 / total);
  for (std::int64_t j = lane; j < end; j += 32) y[j] *= inverse;  // this lane's elements
  if (here && losses != nullptr && lane == 0) {
    const std::int32_t label = labels[n];
    double loss = std::numeric_limits<double>::quiet_NaN();
    if (label >= 0 && label < k) {
      loss = ::log(total) - (static_cast<double>(x[label]) - static_cast<double>(most));
    }
    losses[n] = static_cast<T>(loss);
  }
}

LaunchShape warps_for(std::int64_t rows) {
  return {.grid = dim3(static_cast<unsigned>(ceil_div(rows, kRowsPerBlock))),
          .block = dim3(32, kRowsPerBlock)};
}

template <class T>
void softmax_typed(const Tensor& x, const Tensor& labels, const Tensor& y, const Tensor& losses) {
  const std::int64_t rows = x.shape()[0];
  const std::int64_t k = x.shape()[1];
  const std::int32_t* const label = losses.defined() ? labels.data<std::int32_t>() : nullptr;
  T* const loss = losses.defined() ? losses.data<T>() : nullptr;
  if (k <= 1024) {
    return launch(k <= 32    ? short_softmax_rows<1, T>
                  : k <= 256 ? short_softmax_rows<8, T>
                             : short_softmax_rows<32, T>,
                  warps_for(rows), x.data<T>(), label, y.data<T>(), loss, rows,
                  static_cast<int>(k));
  }
  launch(softmax_rows<T>, warps_for(rows), x.data<T>(), label, y.data<T>(), loss, rows, k);
}

void softmax_cuda(const Tensor& x, const Tensor& labels, const Tensor& y, const Tensor& losses) {
  if (x.numel() == 0) return;
  if (x.dtype() == DType::f64) return softmax_typed<double>(x, labels, y, losses);
  softmax_typed<float>(x, labels, y, losses);
}

// A warp processes a row.
template <class T>
__global__ void gradient_rows(const T* y, const std::int32_t* labels, T factor, T* dx,
                              std::int64_t rows, std::int64_t k) {
  const std::int64_t n = static_cast<std::int64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.y;
  if (n >= rows) return;
  const std::int32_t label = labels[n];
  y += n * k;
  dx += n * k;
#pragma unroll 4
  for (std::int64_t j = threadIdx.x; j < k; j += 32) {
    dx[j] = j == label ? (y[j] - T{1}) * factor : y[j] * factor;
  }
}

template <class T>
void gradient_typed(const Tensor& y, const Tensor& labels, double factor, const Tensor& dx) {
  launch(gradient_rows<T>, warps_for(y.shape()[0]), y.data<T>(), labels.data<std::int32_t>(),
         static_cast<T>(factor), dx.data<T>(), y.shape()[0], y.shape()[1]);
}

void gradient_cuda(const Tensor& y, const Tensor& labels, double factor, const Tensor& dx) {
  if (y.dtype() == DType::f64) return gradient_typed<double>(y, labels, factor, dx);
  gradient_typed<float>(y, labels, factor, dx);
}

// Computes argmax of each row: NaN counts as the largest, and among equals the first wins.
template <class T>
__device__ bool comes_first(T a, std::int64_t at_a, T b, std::int64_t at_b) {
  const bool nan_a = a != a;
  const bool nan_b = b != b;
  if (nan_a != nan_b) return nan_a;
  if (nan_a || a == b) return at_a < at_b;
  return a > b;
}

template <class T>
__global__ void argmax_rows(const T* x, std::int32_t* y, std::int64_t rows, std::int64_t k) {
  const unsigned lane = threadIdx.x;
  const std::int64_t n = static_cast<std::int64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.y;
  const std::int64_t end = n < rows ? k : 0;
  x += n * k;
  std::int64_t best = lane;
  T most = lane < end ? x[lane] : -std::numeric_limits<T>::infinity();
  for (std::int64_t j = lane + 32; j < end; j += 32) {
    if (comes_first(x[j], j, most, best)) {
      most = x[j];
      best = j;
    }
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    const T other = __shfl_xor_sync(kAllLanes, most, offset);
    const auto at =
        static_cast<std::int64_t>(__shfl_xor_sync(kAllLanes, static_cast<long long>(best), offset));
    if (comes_first(other, at, most, best)) {
      most = other;
      best = at;
    }
  }
  if (n < rows && lane == 0) y[n] = static_cast<std::int32_t>(best);
}

template <class T>
void argmax_typed(const Tensor& x, const Tensor& y) {
  launch(argmax_rows<T>, warps_for(x.shape()[0]), x.data<T>(), y.data<std::int32_t>(), x.shape()[0],
         x.shape()[1]);
}

void argmax_cuda(const Tensor& x, const Tensor& y) {
  if (x.dtype() == DType::f64) return argmax_typed<double>(x, y);
  argmax_typed<float>(x, y);
}

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
CONVSCOPE_KERNEL(softmax_kernel, cuda, softmax_cuda)
CONVSCOPE_KERNEL(softmax_gradient_kernel, cuda, gradient_cuda)
CONVSCOPE_KERNEL(argmax_kernel, cuda, argmax_cuda)
}  // namespace convscope
