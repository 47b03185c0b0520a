// SPDX-License-Identifier: Apache-2.0
// batch_norm2d_cpu.cpp: statistics by channel (one thread has a channel), passes by image plane.
#include <algorithm>

#include "framework/parallel.h"
#include "layers/batch_norm2d.h"
#include "layers/batch_norm2d_simd.h"

namespace convscope {

constinit IsaTable<BatchNormKernels> batch_norm_kernels;

namespace {

constexpr std::int64_t kGrain = 1 << 15;

// The f64 twins of batch_norm2d_simd.cpp, for gradient checks.
struct DoubleLoops {
  double sum(const double* x, std::int64_t n) const {
    double total = 0;
    for (std::int64_t i = 0; i < n; ++i) total += x[i];
    return total;
  }
  double square_sum(const double* x, double mean, std::int64_t n) const {
    double total = 0;
    for (std::int64_t i = 0; i < n; ++i) total += (x[i] - mean) * (x[i] - mean);
    return total;
  }
  void gradient_sums(const double* dy, const double* x, double mean, std::int64_t n, double* sum_dy,
                     double* sum_dy_x) const {
    *sum_dy = sum(dy, n);
    *sum_dy_x = 0;
    for (std::int64_t i = 0; i < n; ++i) *sum_dy_x += dy[i] * (x[i] - mean);
  }
  void apply(const double* x, double factor, double shift, double* y, std::int64_t n) const {
    for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] * factor + shift;
  }
  void gradient(const double* dy, const double* x, double mean, double a, double b, double d,
                double* dx, std::int64_t n) const {
    for (std::int64_t i = 0; i < n; ++i) dx[i] = a * dy[i] + (b * (x[i] - mean) + d);
  }
};

template <class T>
const auto& loops() {
  if constexpr (std::is_same_v<T, double>) {
    static constexpr DoubleLoops kLoops;
    return kLoops;
  } else {
    return batch_norm_kernels.get();
  }
}

// Calls body(c) for each channel.
template <class Body>
void for_channels(const Shape& x, Body&& body) {
  const std::int64_t values = std::max<std::int64_t>(1, x[0] * x[2] * x[3]);
  parallel_for(x[1], std::max<std::int64_t>(1, kGrain / values),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t c = begin; c < end; ++c) body(c);
               });
}

// Calls body(c, offset of the plane) for each image plane.
template <class Body>
void for_planes(const Shape& x, Body&& body) {
  const std::int64_t pixels = std::max<std::int64_t>(1, x[2] * x[3]);
  parallel_for(x[0] * x[1], std::max<std::int64_t>(1, kGrain / pixels),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i) body(i % x[1], i * pixels);
               });
}

template <class T>
void statistics_typed(const Tensor& x, double* mean, double* variance) {
  const std::int64_t images = x.dim(0), channels = x.dim(1), pixels = x.dim(2) * x.dim(3);
  const auto count = static_cast<double>(std::max<std::int64_t>(1, images * pixels));
  const T* const from = x.data<T>();
  const auto& loop = loops<T>();
  for_channels(x.shape(), [&](std::int64_t c) {
    double total = 0;
    for (std::int64_t n = 0; n < images; ++n) {
      total += loop.sum(from + (n * channels + c) * pixels, pixels);
    }
    const double middle = total / count;
    double squares = 0;
    for (std::int64_t n = 0; n < images; ++n) {
      squares += loop.square_sum(from + (n * channels + c) * pixels, middle, pixels);
    }
    mean[c] = middle;
    variance[c] = squares / count;
  });
}

void statistics_cpu(const Tensor& x, const Tensor& mean, const Tensor& variance) {
  double* const m = mean.data<double>();
  double* const v = variance.data<double>();
  if (x.dtype() == DType::f64) return statistics_typed<double>(x, m, v);
  statistics_typed<float>(x, m, v);
}

template <class T>
void apply_typed(const Tensor& x, const double* factor, const double* shift, const Tensor& y) {
  const std::int64_t pixels = x.dim(2) * x.dim(3);
  const T* const from = x.data<T>();
  T* const to = y.data<T>();
  const auto& loop = loops<T>();
  for_planes(x.shape(), [&](std::int64_t c, std::int64_t at) {
    loop.apply(from + at, static_cast<T>(factor[c]), static_cast<T>(shift[c]), to + at, pixels);
  });
}

void apply_cpu(const Tensor& x, const Tensor& factor, const Tensor& shift, const Tensor& y) {
  const double* const f = factor.data<double>();
  const double* const s = shift.data<double>();
  if (x.dtype() == DType::f64) return apply_typed<double>(x, f, s, y);
  apply_typed<float>(x, f, s, y);
}

template <class T>
void sums_typed(const Tensor& dy, const Tensor& x, const double* mean, double* sum_dy,
                double* sum_dy_x) {
  const std::int64_t images = x.dim(0), channels = x.dim(1), pixels = x.dim(2) * x.dim(3);
  const T* const pdy = dy.data<T>();
  const T* const px = x.data<T>();
  const auto& loop = loops<T>();
  for_channels(x.shape(), [&](std::int64_t c) {
    double total_dy = 0;
    double total_dy_x = 0;
    for (std::int64_t n = 0; n < images; ++n) {
      const std::int64_t at = (n * channels + c) * pixels;
      double part_dy = 0;
      double part_dy_x = 0;
      loop.gradient_sums(pdy + at, px + at, mean[c], pixels, &part_dy, &part_dy_x);
      total_dy += part_dy;
      total_dy_x += part_dy_x;
    }
    sum_dy[c] = total_dy;
    sum_dy_x[c] = total_dy_x;
  });
}

void sums_cpu(const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& sum_dy,
              const Tensor& sum_dy_x) {
  const double* const m = mean.data<double>();
  double* const s = sum_dy.data<double>();
  double* const sx = sum_dy_x.data<double>();
  if (x.dtype() == DType::f64) return sums_typed<double>(dy, x, m, s, sx);
  sums_typed<float>(dy, x, m, s, sx);
}

template <class T>
void gradient_typed(const Tensor& dy, const Tensor& x, const double* mean, const double* a,
                    const double* b, const double* d, const Tensor& dx) {
  const std::int64_t pixels = x.dim(2) * x.dim(3);
  const T* const pdy = dy.data<T>();
  const T* const px = x.data<T>();
  T* const to = dx.data<T>();
  const auto& loop = loops<T>();
  for_planes(x.shape(), [&](std::int64_t c, std::int64_t at) {
    loop.gradient(pdy + at, px + at, static_cast<T>(mean[c]), static_cast<T>(a[c]),
                  static_cast<T>(b[c]), static_cast<T>(d[c]), to + at, pixels);
  });
}

void gradient_cpu(const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& a,
                  const Tensor& b, const Tensor& d, const Tensor& dx) {
  const double* const m = mean.data<double>();
  const double* const pa = a.data<double>();
  const double* const pb = b.data<double>();
  const double* const pd = d.data<double>();
  if (x.dtype() == DType::f64) return gradient_typed<double>(dy, x, m, pa, pb, pd, dx);
  gradient_typed<float>(dy, x, m, pa, pb, pd, dx);
}

}  // namespace
CONVSCOPE_KERNEL(batch_norm_statistics_kernel, cpu, statistics_cpu)
CONVSCOPE_KERNEL(batch_norm_apply_kernel, cpu, apply_cpu)
CONVSCOPE_KERNEL(batch_norm_sums_kernel, cpu, sums_cpu)
CONVSCOPE_KERNEL(batch_norm_gradient_kernel, cpu, gradient_cpu)
}  // namespace convscope
