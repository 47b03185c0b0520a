// SPDX-License-Identifier: Apache-2.0
// pool2d_cuda.cu: pooling; the forward pass loops over windows, the backward pass over pixels.
//
// Method    A thread block processes rows. Its threads run along the rows, so that neighbouring
//           threads load neighbouring elements. The backward pass gathers: each pixel of x adds the
//           shares of the windows that contain the pixel, in reading order. So no two threads write
//           to one pixel, and results have the same bits as on the CPU. For windows of 2x2 and 3x3
//           at stride 2 the sizes are compile-time constants, so divisions become shifts.
#include "framework/cuda/launch.cuh"
#include "framework/precision.h"
#include "layers/pool2d/pool2d_half.cuh"
#include "layers/pool2d/pool2d_tiled.cuh"

namespace convscope {
namespace {

struct PoolSizes {
  int h, w, p, q;
  int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
  bool count_include_pad;
};

int narrow(std::int64_t size) {
  CONVSCOPE_CHECK(size < (std::int64_t{1} << 30), "pool2d", "expected sizes below 2^30, got ",
                  size);
  return static_cast<int>(size);
}

PoolSizes sizes_of(const Shape& x, const Shape& y, const Pool2dWindow& window) {
  return {narrow(x[2]),
          narrow(x[3]),
          narrow(y[2]),
          narrow(y[3]),
          narrow(window.kernel_h),
          narrow(window.kernel_w),
          narrow(window.stride_h),
          narrow(window.stride_w),
          narrow(window.pad_h),
          narrow(window.pad_w),
          window.count_include_pad};
}

// kKernel and kStride are the compile-time sizes along both axes; 0: the sizes of the window are
// used.
template <int kKernel, int kStride>
__device__ void know(PoolSizes& s) {
  if constexpr (kKernel > 0) s.kernel_h = s.kernel_w = kKernel;
  if constexpr (kStride > 0) s.stride_h = s.stride_w = kStride;
}

__device__ inline int least(int a, int b) { return a < b ? a : b; }
__device__ inline int most(int a, int b) { return a > b ? a : b; }

// Calls body(plane, row in the plane, row in the whole tensor) for each row of this thread.
template <class Body>
__device__ void for_rows(std::int64_t rows, int height, Body&& body) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
       row < rows; row += step) {
    const std::int64_t plane = row / height;
    body(plane, static_cast<int>(row - plane * height), row);
  }
}

LaunchShape rows_of(std::int64_t rows, int width) {
  unsigned along = 8;
  while (static_cast<int>(along) < width && along < 256) along *= 2;
  const unsigned high = 256 / along;
  LaunchShape shape = grid_for(ceil_div(rows, high), 1);
  shape.block = dim3(along, high);
  return shape;
}

template <int kKernel, int kStride, class T, class Tap>
__global__ void __launch_bounds__(256)
    max_rows(const T* x, PoolSizes s, T* y, Tap* taps, std::int64_t rows) {
  know<kKernel, kStride>(s);
  for_rows(rows, s.p, [&](std::int64_t plane, int p, std::int64_t row) {
    const T* const image = x + plane * s.h * s.w;
    const int top = p * s.stride_h - s.pad_h;
    const int i_begin = most(0, top);
    const int i_end = least(top + s.kernel_h, s.h);
    for (int q = static_cast<int>(threadIdx.x); q < s.q; q += static_cast<int>(blockDim.x)) {
      const int left = q * s.stride_w - s.pad_w;
      const int j_begin = most(0, left);
      const int j_end = least(left + s.kernel_w, s.w);
      T best = image[static_cast<std::int64_t>(i_begin) * s.w + j_begin];
      int tap = (i_begin - top) * s.kernel_w + j_begin - left;
      for (int i = i_begin; i < i_end; ++i) {
        const T* const in = image + static_cast<std::int64_t>(i) * s.w;
        for (int j = j_begin; j < j_end; ++j) {
          const T value = in[j];
          if (value > best || value != value) {  // as the CPU: the first maximum, the last NaN
            best = value;
            tap = (i - top) * s.kernel_w + j - left;
          }
        }
      }
      y[row * s.q + q] = best;
      if (taps != nullptr) taps[row * s.q + q] = static_cast<Tap>(tap);
    }
  });
}

// The windows along one axis that hold pixel i: [begin, end).
struct Range {
  int begin, end;
};
__device__ Range windows_of(int i, int kernel, int stride, int pad, int count) {
  const int last = i + pad;
  const int first = last - kernel + 1;
  return {first <= 0 ? 0 : ceil_div(first, stride), least(count, last / stride + 1)};
}

template <int kKernel, int kStride, class T, class Tap>
__global__ void __launch_bounds__(256)
    max_gradient_rows(const T* dy, const Tap* taps, PoolSizes s, T* dx, std::int64_t rows) {
  know<kKernel, kStride>(s);
  for_rows(rows, s.h, [&](std::int64_t plane, int i, std::int64_t row) {
    const Range down = windows_of(i, s.kernel_h, s.stride_h, s.pad_h, s.p);
    const std::int64_t base = plane * s.p * s.q;
    for (int j = static_cast<int>(threadIdx.x); j < s.w; j += static_cast<int>(blockDim.x)) {
      const Range across = windows_of(j, s.kernel_w, s.stride_w, s.pad_w, s.q);
      T sum = 0;
      for (int p = down.begin; p < down.end; ++p) {
        const int r = i + s.pad_h - p * s.stride_h;
        for (int q = across.begin; q < across.end; ++q) {
          const int tap = r * s.kernel_w + j + s.pad_w - q * s.stride_w;
          const std::int64_t at = base + static_cast<std::int64_t>(p) * s.q + q;
          if (static_cast<int>(taps[at]) == tap) sum += dy[at];
        }
      }
      dx[row * s.w + j] = sum;
    }
  });
}

// Returns the number of pixels by which the sum over a window is divided, along one axis.
__device__ int divisor(int start, int kernel, int size, int pad, bool count_include_pad) {
  if (count_include_pad) return least(start + kernel, size + pad) - start;
  return least(start + kernel, size) - most(0, start);
}

template <int kKernel, int kStride, class T>
__global__ void __launch_bounds__(256) avg_rows(const T* x, PoolSizes s, T* y, std::int64_t rows) {
  know<kKernel, kStride>(s);
  for_rows(rows, s.p, [&](std::int64_t plane, int p, std::int64_t row) {
    const T* const image = x + plane * s.h * s.w;
    const int top = p * s.stride_h - s.pad_h;
    const int height = divisor(top, s.kernel_h, s.h, s.pad_h, s.count_include_pad);
    for (int q = static_cast<int>(threadIdx.x); q < s.q; q += static_cast<int>(blockDim.x)) {
      const int left = q * s.stride_w - s.pad_w;
      const int width = divisor(left, s.kernel_w, s.w, s.pad_w, s.count_include_pad);
      T total = 0;
      for (int i = most(0, top); i < least(top + s.kernel_h, s.h); ++i) {
        T sum = 0;
        for (int j = most(0, left); j < least(left + s.kernel_w, s.w); ++j) {
          sum += image[static_cast<std::int64_t>(i) * s.w + j];
        }
        total += sum;
      }
      y[row * s.q + q] = total * (T{1} / (static_cast<T>(height) * static_cast<T>(width)));
    }
  });
}

template <int kKernel, int kStride, class T>
__global__ void __launch_bounds__(256)
    avg_gradient_rows(const T* dy, PoolSizes s, T* dx, std::int64_t rows) {
  know<kKernel, kStride>(s);
  for_rows(rows, s.h, [&](std::int64_t plane, int i, std::int64_t row) {
    const Range down = windows_of(i, s.kernel_h, s.stride_h, s.pad_h, s.p);
    const std::int64_t base = plane * s.p * s.q;
    for (int j = static_cast<int>(threadIdx.x); j < s.w; j += static_cast<int>(blockDim.x)) {
      const Range across = windows_of(j, s.kernel_w, s.stride_w, s.pad_w, s.q);
      T sum = 0;
      for (int p = down.begin; p < down.end; ++p) {
        const int height =
            divisor(p * s.stride_h - s.pad_h, s.kernel_h, s.h, s.pad_h, s.count_include_pad);
        for (int q = across.begin; q < across.end; ++q) {
          const int width =
              divisor(q * s.stride_w - s.pad_w, s.kernel_w, s.w, s.pad_w, s.count_include_pad);
          sum += dy[base + static_cast<std::int64_t>(p) * s.q + q] *
                 (T{1} / (static_cast<T>(height) * static_cast<T>(width)));
        }
      }
      dx[row * s.w + j] = sum;
    }
  });
}

// Returns part p of `parts` of an axis: floor(p size / parts) to ceil((p + 1) size / parts).
__device__ Range adaptive(std::int64_t p, std::int64_t size, std::int64_t parts) {
  return {static_cast<int>(p * size / parts), static_cast<int>(ceil_div((p + 1) * size, parts))};
}

// Averages by one warp for each output, because the usual case is the mean of a whole plane.
template <class T>
__global__ void adaptive_outputs(const T* x, PoolSizes s, T* y, std::int64_t outputs) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t warps = global_threads() / 32;
  for (std::int64_t at = global_thread() / 32; at < outputs; at += warps) {
    const Range rows = adaptive(at / s.q % s.p, s.h, s.p);
    const Range columns = adaptive(at % s.q, s.w, s.q);
    const T* const image = x + at / (static_cast<std::int64_t>(s.p) * s.q) * s.h * s.w;
    const int width = columns.end - columns.begin;
    const int count = (rows.end - rows.begin) * width;
    double sum = 0;
    for (int e = lane; e < count; e += 32) {
      const int i = e / width;
      sum += static_cast<double>(
          image[static_cast<std::int64_t>(rows.begin + i) * s.w + columns.begin + e - i * width]);
    }
    sum = warp_sum(sum);
    if (lane == 0) y[at] = static_cast<T>(sum) / static_cast<T>(count);
  }
}

template <class T>
__global__ void __launch_bounds__(256)
    adaptive_gradient_rows(const T* dy, PoolSizes s, T* dx, std::int64_t all_rows) {
  for_rows(all_rows, s.h, [&](std::int64_t plane, int i, std::int64_t row) {
    // The loops run from the first window that ends after i to the last that begins at or before i.
    const std::int64_t p_begin = static_cast<std::int64_t>(i) * s.p / s.h;
    const std::int64_t base = plane * s.p * s.q;
    for (int j = static_cast<int>(threadIdx.x); j < s.w; j += static_cast<int>(blockDim.x)) {
      T sum = 0;
      for (std::int64_t p = p_begin; p < s.p; ++p) {
        const Range rows = adaptive(p, s.h, s.p);
        if (rows.begin > i) break;
        if (rows.end <= i) continue;
        for (std::int64_t q = static_cast<std::int64_t>(j) * s.q / s.w; q < s.q; ++q) {
          const Range columns = adaptive(q, s.w, s.q);
          if (columns.begin > j) break;
          if (columns.end <= j) continue;
          const int count = (rows.end - rows.begin) * (columns.end - columns.begin);
          sum += dy[base + p * s.q + q] / static_cast<T>(count);
        }
      }
      dx[row * s.w + j] = sum;
    }
  });
}

// Selects the compiled kernel: body.template operator()<kKernel, kStride>().
template <class Body>
void choose(const PoolSizes& s, const Body& body) {
  const bool square = s.kernel_h == s.kernel_w && s.stride_h == 2 && s.stride_w == 2;
  if (square && s.kernel_h == 2) return body.template operator()<2, 2>();
  if (square && s.kernel_h == 3) return body.template operator()<3, 2>();
  body.template operator()<0, 0>();
}

std::int64_t rows_in(const Tensor& images) { return images.dim(0) * images.dim(1) * images.dim(2); }

template <class T, class Tap>
void max_typed(const Tensor& x, const PoolSizes& s, const Tensor& y, Tap* taps) {
  choose(s, [&]<int kKernel, int kStride>() {
    launch(max_rows<kKernel, kStride, T, Tap>, rows_of(rows_in(y), s.q), x.data<T>(), s,
           y.data<T>(), taps, rows_in(y));
  });
}

template <class T>
void max_by_taps(const Tensor& x, const Pool2dWindow& window, const Tensor& y, const Tensor& taps) {
  const PoolSizes s = sizes_of(x.shape(), y.shape(), window);
  if (taps.defined() && taps.dtype() == DType::i32) {
    return max_typed<T>(x, s, y, taps.data<std::int32_t>());
  }
  max_typed<T>(x, s, y, taps.defined() ? taps.data<std::uint8_t>() : nullptr);
}

void max_cuda(const Tensor& x, const Pool2dWindow& window, const Tensor& y, const Tensor& taps) {
  if (x.rank() == 5) return max_pool_half(x, window, y, taps);
  if (max_pool_tiled(x, window, y, taps)) return;
  if (x.dtype() == DType::f64) return max_by_taps<double>(x, window, y, taps);
  max_by_taps<float>(x, window, y, taps);
}

template <class T, class Tap>
void max_gradient_typed(const Tensor& dy, const PoolSizes& s, const Tap* taps, const Tensor& dx) {
  choose(s, [&]<int kKernel, int kStride>() {
    launch(max_gradient_rows<kKernel, kStride, T, Tap>, rows_of(rows_in(dx), s.w), dy.data<T>(),
           taps, s, dx.data<T>(), rows_in(dx));
  });
}

template <class T>
void max_gradient_by_taps(const Tensor& dy, const Tensor& taps, const Pool2dWindow& window,
                          const Tensor& dx) {
  const PoolSizes s = sizes_of(dx.shape(), dy.shape(), window);
  if (taps.dtype() == DType::i32) {
    return max_gradient_typed<T>(dy, s, taps.data<std::int32_t>(), dx);
  }
  max_gradient_typed<T>(dy, s, taps.data<std::uint8_t>(), dx);
}

void max_gradient_cuda(const Tensor& dy, const Tensor& taps, const Pool2dWindow& window,
                       const Tensor& dx) {
  if (dy.rank() == 5) return max_pool_half_gradient(dy, taps, window, dx);
  if (max_pool_tiled_gradient(dy, taps, window, dx)) return;
  if (dy.dtype() == DType::f64) return max_gradient_by_taps<double>(dy, taps, window, dx);
  max_gradient_by_taps<float>(dy, taps, window, dx);
}

template <class T>
void avg_typed(const Tensor& x, const Pool2dWindow& window, const Tensor& y) {
  const PoolSizes s = sizes_of(x.shape(), y.shape(), window);
  choose(s, [&]<int kKernel, int kStride>() {
    launch(avg_rows<kKernel, kStride, T>, rows_of(rows_in(y), s.q), x.data<T>(), s, y.data<T>(),
           rows_in(y));
  });
}

void avg_cuda(const Tensor& x, const Pool2dWindow& window, const Tensor& y) {
  if (x.rank() == 5) return avg_pool_half(x, window, y);
  if (avg_pool_tiled(x, window, y)) return;
  if (x.dtype() == DType::f64) return avg_typed<double>(x, window, y);
  avg_typed<float>(x, window, y);
}

template <class T>
void avg_gradient_typed(const Tensor& dy, const Pool2dWindow& window, const Tensor& dx) {
  const PoolSizes s = sizes_of(dx.shape(), dy.shape(), window);
  choose(s, [&]<int kKernel, int kStride>() {
    launch(avg_gradient_rows<kKernel, kStride, T>, rows_of(rows_in(dx), s.w), dy.data<T>(), s,
           dx.data<T>(), rows_in(dx));
  });
}

void avg_gradient_cuda(const Tensor& dy, const Pool2dWindow& window, const Tensor& dx) {
  if (dy.rank() == 5) return avg_pool_half_gradient(dy, window, dx);
  if (avg_pool_tiled_gradient(dy, window, dx)) return;
  if (dy.dtype() == DType::f64) return avg_gradient_typed<double>(dy, window, dx);
  avg_gradient_typed<float>(dy, window, dx);
}

template <class T>
void adaptive_typed(const Tensor& x, const Tensor& y) {
  launch(adaptive_outputs<T>, grid_for(y.numel() * 32), x.data<T>(),
         sizes_of(x.shape(), y.shape(), {}), y.data<T>(), y.numel());
}

void adaptive_cuda(const Tensor& x, const Tensor& y) {
  if (x.rank() == 5) return adaptive_pool_half(x, y);
  if (plane_means(x, y)) return;
  if (x.dtype() == DType::f64) return adaptive_typed<double>(x, y);
  adaptive_typed<float>(x, y);
}

template <class T>
void adaptive_gradient_typed(const Tensor& dy, const Tensor& dx) {
  const PoolSizes s = sizes_of(dx.shape(), dy.shape(), {});
  launch(adaptive_gradient_rows<T>, rows_of(rows_in(dx), s.w), dy.data<T>(), s, dx.data<T>(),
         rows_in(dx));
}

void adaptive_gradient_cuda(const Tensor& dy, const Tensor& dx) {
  if (dy.rank() == 5) return adaptive_pool_half_gradient(dy, dx);
  if (plane_means_gradient(dy, dx)) return;
  if (dy.dtype() == DType::f64) return adaptive_gradient_typed<double>(dy, dx);
  adaptive_gradient_typed<float>(dy, dx);
}

}  // namespace
CONVSCOPE_KERNEL(max_pool_kernel, cuda, max_cuda)
CONVSCOPE_KERNEL(max_pool_gradient_kernel, cuda, max_gradient_cuda)
CONVSCOPE_KERNEL(avg_pool_kernel, cuda, avg_cuda)
CONVSCOPE_KERNEL(avg_pool_gradient_kernel, cuda, avg_gradient_cuda)
CONVSCOPE_KERNEL(adaptive_pool_kernel, cuda, adaptive_cuda)
CONVSCOPE_KERNEL(adaptive_pool_gradient_kernel, cuda, adaptive_gradient_cuda)
}  // namespace convscope
