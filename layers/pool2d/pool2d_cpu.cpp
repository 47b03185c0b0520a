// SPDX-License-Identifier: Apache-2.0
// pool2d_cpu.cpp: pooling with any window, as plain loops over planes. Two cases in f32 use
// pool2d_simd.cpp: windows of 2x2 at stride 2, and the maximum at stride 1 or 2. NCHW16c images use
// pool2d_nchw16c_cpu.cpp.
#include <algorithm>
#include <array>

#include "framework/int_math.h"
#include "framework/parallel.h"
#include "layers/pool2d/pool2d.h"
#include "layers/pool2d/pool2d_nchw16c.h"
#include "layers/pool2d/pool2d_simd.h"

namespace convscope {

constinit IsaTable<Pool2x2Kernels> pool2x2_kernels;

namespace {

constexpr std::int64_t kGrain = 1 << 15;  // pixels of x in one chunk

// Calls body(begin, end) over planes [N C].
template <class Body>
void for_planes(const Shape& x, Body&& body) {
  const std::int64_t pixels = std::max<std::int64_t>(1, x[2] * x[3]);
  parallel_for(x[0] * x[1], std::max<std::int64_t>(1, kGrain / pixels), body);
}

// The part of a window that is inside of the image.
struct Span {
  std::int64_t begin, end;
};
Span clipped(std::int64_t start, std::int64_t kernel, std::int64_t size) {
  return {std::max<std::int64_t>(0, start), std::min(start + kernel, size)};
}

// Tells whether the pool is f32, 2x2 at stride 2, with every window whole.
bool is_2x2(const Tensor& x, const Pool2dWindow& window, const Tensor& y) {
  return x.dtype() == DType::f32 && window.kernel_h == 2 && window.kernel_w == 2 &&
         window.stride_h == 2 && window.stride_w == 2 && window.pad_h == 0 && window.pad_w == 0 &&
         2 * y.dim(2) <= x.dim(2) && 2 * y.dim(3) <= x.dim(3);
}

// Calls body(sizes of the chunk, offset in x, offset in y).
template <class Body>
void for_planes_2x2(const Shape& x, const Shape& y, Body&& body) {
  for_planes(x, [&](std::int64_t begin, std::int64_t end) {
    body(Pool2x2Sizes{.planes = end - begin, .h = x[2], .w = x[3], .p = y[2], .q = y[3]},
         begin * x[2] * x[3], begin * y[2] * y[3]);
  });
}

template <class T, class Tap>
void max_planes(const Tensor& x, const Pool2dWindow& window, const Tensor& y, Tap* taps) {
  const std::int64_t h = x.dim(2), w = x.dim(3), p_end = y.dim(2), q_end = y.dim(3);
  const T* const from = x.data<T>();
  T* const to = y.data<T>();
  for_planes(x.shape(), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t plane = first; plane < last; ++plane) {
      const T* const image = from + plane * h * w;
      for (std::int64_t p = 0; p < p_end; ++p) {
        const std::int64_t top = p * window.stride_h - window.pad_h;
        const Span rows = clipped(top, window.kernel_h, h);
        for (std::int64_t q = 0; q < q_end; ++q) {
          const std::int64_t left = q * window.stride_w - window.pad_w;
          const Span columns = clipped(left, window.kernel_w, w);
          std::int64_t best = rows.begin * w + columns.begin;
          for (std::int64_t i = rows.begin; i < rows.end; ++i) {
            for (std::int64_t j = columns.begin; j < columns.end; ++j) {
              const T value = image[i * w + j];
              if (value > image[best] || value != value) best = i * w + j;
            }
          }
          const std::int64_t at = (plane * p_end + p) * q_end + q;
          to[at] = image[best];
          if (taps != nullptr) {
            taps[at] = static_cast<Tap>((best / w - top) * window.kernel_w + best % w - left);
          }
        }
      }
    }
  });
}

template <class T>
void max_typed(const Tensor& x, const Pool2dWindow& window, const Tensor& y, const Tensor& taps) {
  if (taps.defined() && taps.dtype() == DType::i32) {
    return max_planes<T>(x, window, y, taps.data<std::int32_t>());
  }
  max_planes<T>(x, window, y, taps.defined() ? taps.data<std::uint8_t>() : nullptr);
}

void max_vectors(const Tensor& x, const Pool2dWindow& window, const Tensor& y, std::uint8_t* taps) {
  const Shape& shape = x.shape();
  MaxPoolSizes sizes{.planes = 0,
                     .h = shape[2],
                     .w = shape[3],
                     .p = y.dim(2),
                     .q = y.dim(3),
                     .kernel_h = static_cast<int>(window.kernel_h),
                     .kernel_w = static_cast<int>(window.kernel_w),
                     .stride_h = static_cast<int>(window.stride_h),
                     .stride_w = static_cast<int>(window.stride_w),
                     .pad_h = static_cast<int>(window.pad_h),
                     .pad_w = static_cast<int>(window.pad_w),
                     .whole_begin = 0,
                     .whole_end = 0};
  sizes.whole_begin = std::min(sizes.q, (window.pad_w + window.stride_w - 1) / window.stride_w);
  const std::int64_t room = shape[3] + window.pad_w - window.kernel_w;  // of the last whole window
  sizes.whole_end =
      std::clamp(room < 0 ? 0 : room / window.stride_w + 1, sizes.whole_begin, sizes.q);
  const float* const from = x.data<float>();
  float* const to = y.data<float>();
  const auto forward = pool2x2_kernels.get().max_any;
  for_planes(shape, [&](std::int64_t begin, std::int64_t end) {
    MaxPoolSizes part = sizes;
    part.planes = end - begin;
    const std::int64_t out = begin * sizes.p * sizes.q;
    forward(part, from + begin * sizes.h * sizes.w, to + out,
            taps == nullptr ? nullptr : taps + out);
  });
}

void max_cpu(const Tensor& x, const Pool2dWindow& window, const Tensor& y, const Tensor& taps) {
  if (is_nchw16c(x)) return nchw16c_max_pool(x, window, y, taps);
  if (x.dtype() == DType::f64) return max_typed<double>(x, window, y, taps);
  const bool small = window.kernel_h * window.kernel_w <= 256;
  if (!small || window.stride_w > 2) return max_typed<float>(x, window, y, taps);
  const float* const from = x.data<float>();
  float* const to = y.data<float>();
  std::uint8_t* const tap = taps.defined() ? taps.data<std::uint8_t>() : nullptr;
  if (!is_2x2(x, window, y)) return max_vectors(x, window, y, tap);
  const auto forward = pool2x2_kernels.get().max_forward;
  for_planes_2x2(x.shape(), y.shape(),
                 [&](const Pool2x2Sizes& sizes, std::int64_t in, std::int64_t out) {
                   forward(sizes, from + in, to + out, tap == nullptr ? nullptr : tap + out);
                 });
}

template <class T, class Tap>
void max_gradient_planes(const Tensor& dy, const Tap* taps, const Pool2dWindow& window,
                         const Tensor& dx) {
  const std::int64_t h = dx.dim(2), w = dx.dim(3), p_end = dy.dim(2), q_end = dy.dim(3);
  const T* const from = dy.data<T>();
  T* const to = dx.data<T>();
  // The offset of each element of a small window from the window's first element. The table avoids
  // a division for each output, which would take longer than all other work.
  std::array<std::int64_t, 256> places{};
  const std::int64_t elements = window.kernel_h * window.kernel_w;
  const bool small = elements <= static_cast<std::int64_t>(places.size());
  for (std::int64_t tap = 0; small && tap < elements; ++tap) {
    places[static_cast<std::size_t>(tap)] = tap / window.kernel_w * w + tap % window.kernel_w;
  }
  const auto place = [&](Tap tap) {
    const auto t = static_cast<std::int64_t>(tap);
    return small ? places[static_cast<std::size_t>(tap)]
                 : t / window.kernel_w * w + t % window.kernel_w;
  };
  for_planes(dx.shape(), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t plane = first; plane < last; ++plane) {
      T* const image = to + plane * h * w;
      std::fill(image, image + h * w, T{0});
      for (std::int64_t p = 0; p < p_end; ++p) {
        const std::int64_t row = (p * window.stride_h - window.pad_h) * w - window.pad_w;
        for (std::int64_t q = 0; q < q_end; ++q) {
          const std::int64_t at = (plane * p_end + p) * q_end + q;
          image[row + q * window.stride_w + place(taps[at])] += from[at];
        }
      }
    }
  });
}

template <class T>
void max_gradient_typed(const Tensor& dy, const Tensor& taps, const Pool2dWindow& window,
                        const Tensor& dx) {
  if (taps.dtype() == DType::i32) {
    return max_gradient_planes<T>(dy, taps.data<std::int32_t>(), window, dx);
  }
  max_gradient_planes<T>(dy, taps.data<std::uint8_t>(), window, dx);
}

void max_gradient_cpu(const Tensor& dy, const Tensor& taps, const Pool2dWindow& window,
                      const Tensor& dx) {
  if (is_nchw16c(dy)) return nchw16c_max_pool_gradient(dy, taps, window, dx);
  if (dy.dtype() == DType::f64) return max_gradient_typed<double>(dy, taps, window, dx);
  if (!is_2x2(dx, window, dy)) return max_gradient_typed<float>(dy, taps, window, dx);
  const float* const from = dy.data<float>();
  const std::uint8_t* const tap = taps.data<std::uint8_t>();
  float* const to = dx.data<float>();
  const auto backward = pool2x2_kernels.get().max_backward;
  for_planes_2x2(dx.shape(), dy.shape(),
                 [&](const Pool2x2Sizes& sizes, std::int64_t in, std::int64_t out) {
                   backward(sizes, from + out, tap + out, to + in);
                 });
}

// Returns the number of pixels by which the sum over window p is divided, along one axis.
std::int64_t divisor(std::int64_t start, std::int64_t kernel, std::int64_t size, std::int64_t pad,
                     bool count_include_pad) {
  if (count_include_pad) return std::min(start + kernel, size + pad) - start;
  const Span inside = clipped(start, kernel, size);
  return inside.end - inside.begin;
}

// Calls body(plane, place in y, rows, columns, 1 / divisor) for each window of the planes [first,
// last). The forward and the backward pass both use this function.
template <class T, class Body>
void for_windows(const Shape& x, const Shape& y, const Pool2dWindow& window, std::int64_t first,
                 std::int64_t last, Body&& body) {
  for (std::int64_t plane = first; plane < last; ++plane) {
    for (std::int64_t p = 0; p < y[2]; ++p) {
      const std::int64_t top = p * window.stride_h - window.pad_h;
      const std::int64_t height =
          divisor(top, window.kernel_h, x[2], window.pad_h, window.count_include_pad);
      for (std::int64_t q = 0; q < y[3]; ++q) {
        const std::int64_t left = q * window.stride_w - window.pad_w;
        const std::int64_t width =
            divisor(left, window.kernel_w, x[3], window.pad_w, window.count_include_pad);
        body(plane, (plane * y[2] + p) * y[3] + q, clipped(top, window.kernel_h, x[2]),
             clipped(left, window.kernel_w, x[3]), T{1} / static_cast<T>(height * width));
      }
    }
  }
}

template <class T>
T window_sum(const T* image, std::int64_t w, Span rows, Span columns) {
  T total = 0;
  for (std::int64_t i = rows.begin; i < rows.end; ++i) {
    T row = 0;
    for (std::int64_t j = columns.begin; j < columns.end; ++j) row += image[i * w + j];
    total += row;
  }
  return total;
}

template <class T>
void window_add(T* image, std::int64_t w, Span rows, Span columns, T value) {
  for (std::int64_t i = rows.begin; i < rows.end; ++i) {
    for (std::int64_t j = columns.begin; j < columns.end; ++j) image[i * w + j] += value;
  }
}

template <class T>
void avg_typed(const Tensor& x, const Pool2dWindow& window, const Tensor& y) {
  const std::int64_t w = x.dim(3), pixels = x.dim(2) * w;
  const T* const from = x.data<T>();
  T* const to = y.data<T>();
  for_planes(x.shape(), [&](std::int64_t first, std::int64_t last) {
    for_windows<T>(x.shape(), y.shape(), window, first, last,
                   [&](std::int64_t plane, std::int64_t at, Span rows, Span columns, T factor) {
                     to[at] = window_sum(from + plane * pixels, w, rows, columns) * factor;
                   });
  });
}

void avg_cpu(const Tensor& x, const Pool2dWindow& window, const Tensor& y) {
  if (is_nchw16c(x)) return nchw16c_avg_pool(x, window, y);
  if (x.dtype() == DType::f64) return avg_typed<double>(x, window, y);
  if (!is_2x2(x, window, y)) return avg_typed<float>(x, window, y);
  const float* const from = x.data<float>();
  float* const to = y.data<float>();
  const auto forward = pool2x2_kernels.get().avg_forward;
  for_planes_2x2(x.shape(), y.shape(),
                 [&](const Pool2x2Sizes& sizes, std::int64_t in, std::int64_t out) {
                   forward(sizes, from + in, to + out);
                 });
}

template <class T>
void avg_gradient_typed(const Tensor& dy, const Pool2dWindow& window, const Tensor& dx) {
  const std::int64_t w = dx.dim(3), pixels = dx.dim(2) * w;
  const T* const from = dy.data<T>();
  T* const to = dx.data<T>();
  for_planes(dx.shape(), [&](std::int64_t first, std::int64_t last) {
    std::fill(to + first * pixels, to + last * pixels, T{0});
    for_windows<T>(dx.shape(), dy.shape(), window, first, last,
                   [&](std::int64_t plane, std::int64_t at, Span rows, Span columns, T factor) {
                     window_add(to + plane * pixels, w, rows, columns, from[at] * factor);
                   });
  });
}

void avg_gradient_cpu(const Tensor& dy, const Pool2dWindow& window, const Tensor& dx) {
  if (is_nchw16c(dy)) return nchw16c_avg_pool_gradient(dy, window, dx);
  if (dy.dtype() == DType::f64) return avg_gradient_typed<double>(dy, window, dx);
  if (!is_2x2(dx, window, dy)) return avg_gradient_typed<float>(dy, window, dx);
  const float* const from = dy.data<float>();
  float* const to = dx.data<float>();
  const auto backward = pool2x2_kernels.get().avg_backward;
  for_planes_2x2(dx.shape(), dy.shape(),
                 [&](const Pool2x2Sizes& sizes, std::int64_t in, std::int64_t out) {
                   backward(sizes, from + out, to + in);
                 });
}

// Returns part p of `parts` of an axis: floor(p size / parts) to ceil((p + 1) size / parts).
Span adaptive(std::int64_t p, std::int64_t size, std::int64_t parts) {
  return {p * size / parts, ceil_div((p + 1) * size, parts)};
}

template <class T, bool kForward>
void adaptive_typed(const Tensor& x, const Tensor& y) {
  const std::int64_t h = x.dim(2), w = x.dim(3), p_end = y.dim(2), q_end = y.dim(3);
  T* const px = x.data<T>();
  T* const py = y.data<T>();
  for_planes(x.shape(), [&](std::int64_t first, std::int64_t last) {
    if (!kForward) std::fill(px + first * h * w, px + last * h * w, T{0});
    for (std::int64_t i = first * p_end * q_end; i < last * p_end * q_end; ++i) {
      const Span rows = adaptive(i / q_end % p_end, h, p_end);
      const Span columns = adaptive(i % q_end, w, q_end);
      T* const image = px + i / (p_end * q_end) * h * w;
      const auto count = static_cast<T>((rows.end - rows.begin) * (columns.end - columns.begin));
      if (kForward) {
        py[i] = window_sum(image, w, rows, columns) / count;
      } else {
        window_add(image, w, rows, columns, py[i] / count);
      }
    }
  });
}

void adaptive_cpu(const Tensor& x, const Tensor& y) {
  if (is_nchw16c(x)) return nchw16c_adaptive_pool(x, y);
  if (x.dtype() == DType::f64) return adaptive_typed<double, true>(x, y);
  adaptive_typed<float, true>(x, y);
}

void adaptive_gradient_cpu(const Tensor& dy, const Tensor& dx) {
  if (is_nchw16c(dy)) return nchw16c_adaptive_pool_gradient(dy, dx);
  if (dy.dtype() == DType::f64) return adaptive_typed<double, false>(dx, dy);
  adaptive_typed<float, false>(dx, dy);
}

}  // namespace
CONVSCOPE_KERNEL(max_pool_kernel, cpu, max_cpu)
CONVSCOPE_KERNEL(max_pool_gradient_kernel, cpu, max_gradient_cpu)
CONVSCOPE_KERNEL(avg_pool_kernel, cpu, avg_cpu)
CONVSCOPE_KERNEL(avg_pool_gradient_kernel, cpu, avg_gradient_cpu)
CONVSCOPE_KERNEL(adaptive_pool_kernel, cpu, adaptive_cpu)
CONVSCOPE_KERNEL(adaptive_pool_gradient_kernel, cpu, adaptive_gradient_cpu)
}  // namespace convscope
