// SPDX-License-Identifier: Apache-2.0
// batch_norm2d_cpu.cpp: one thread processes a channel. The sums of a channel are added image by
// image, in order, so the bits do not depend on the number of threads. The pass that writes y or dx
// finds the channel in the cache. NCHW16c images use batch_norm2d_nchw16c_cpu.cpp.
#include <algorithm>
#include <cmath>

#include "framework/parallel.h"
#include "layers/batch_norm2d/batch_norm2d.h"
#include "layers/batch_norm2d/batch_norm2d_factors.h"
#include "layers/batch_norm2d/batch_norm2d_fused.h"
#include "layers/batch_norm2d/batch_norm2d_nchw16c.h"
#include "layers/batch_norm2d/batch_norm2d_simd.h"

namespace convscope {

constinit IsaTable<BatchNormKernels> batch_norm_kernels;
constinit KernelSlot<void(const BatchNormTrainArgs&)> batch_norm_train_kernel{"batch_norm2d"};
constinit KernelSlot<void(const BatchNormTrainGradientArgs&)> batch_norm_train_gradient_kernel{
    "batch_norm2d"};

namespace {

constexpr std::int64_t kGrain = 1 << 15;

// f64 versions of the loops of batch_norm2d_simd.cpp, for gradient checks.
struct DoubleLoops {
  template <class Body>
  static void each(const ChannelPlanes& planes, Body&& body) {
    for (std::int64_t k = 0; k < planes.count; ++k) {
      for (std::int64_t i = 0; i < planes.n; ++i) body(k * planes.stride + i);
    }
  }
  double sum(const ChannelPlanes& planes, const double* x, double shift) const {
    double total = 0;
    each(planes, [&](std::int64_t i) { total += x[i] - shift; });
    return total;
  }
  double square_sum(const ChannelPlanes& planes, const double* x, double mean) const {
    double total = 0;
    each(planes, [&](std::int64_t i) { total += (x[i] - mean) * (x[i] - mean); });
    return total;
  }
  void gradient_sums(const ChannelPlanes& planes, const double* g, const double* x, double mean,
                     double* sum_g, double* sum_g_x) const {
    *sum_g = *sum_g_x = 0;
    each(planes, [&](std::int64_t i) {
      *sum_g += g[i];
      *sum_g_x += g[i] * (x[i] - mean);
    });
  }
  void apply(const ChannelPlanes& planes, const double* x, double mean, double factor, double shift,
             const double* residual, bool relu, double most, double* y) const {
    each(planes, [&](std::int64_t i) {
      const double v = (x[i] - mean) * factor + shift + (residual == nullptr ? 0 : residual[i]);
      y[i] = relu && v <= 0 ? 0 : relu && v > most ? most : v;
    });
  }
  void mask(const ChannelPlanes& planes, const double* dy, const double* y, double most,
            double* g) const {
    each(planes, [&](std::int64_t i) { g[i] = y[i] > 0 && y[i] < most ? dy[i] : 0; });
  }
  void gradient(const ChannelPlanes& planes, const double* dy, const double* x, double mean,
                double a, double b, double d, double* dx) const {
    each(planes, [&](std::int64_t i) { dx[i] = a * dy[i] + (b * (x[i] - mean) + d); });
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

// Calls body(c, the planes of channel c, the offset of its first plane) for each channel c.
template <class Body>
void for_channels(const Shape& x, Body&& body) {
  const std::int64_t pixels = x[2] * x[3];
  const ChannelPlanes planes{.count = x[0], .stride = x[1] * pixels, .n = pixels};
  const std::int64_t values = std::max<std::int64_t>(1, x[0] * pixels);
  const std::int64_t step = x[0] > 0 ? pixels : 0;  // no offset to a null pointer
  parallel_for(x[1], std::max<std::int64_t>(1, kGrain / values),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t c = begin; c < end; ++c) body(c, planes, c * step);
               });
}

// Calls body(c, one plane, its offset) for each image plane.
template <class Body>
void for_planes(const Shape& x, Body&& body) {
  const std::int64_t pixels = std::max<std::int64_t>(1, x[2] * x[3]);
  const ChannelPlanes plane{.count = 1, .stride = 0, .n = pixels};
  parallel_for(x[0] * x[1], std::max<std::int64_t>(1, kGrain / pixels),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i) body(i % x[1], plane, i * pixels);
               });
}

double count_of(const ChannelPlanes& planes) {
  return static_cast<double>(std::max<std::int64_t>(1, planes.count * planes.n));
}

// The sums are taken around a number near the mean: first around the channel's first element, then
// around the mean rounded to T. The effect of this rounding is corrected in double.
template <class T>
void channel_statistics(const ChannelPlanes& planes, const T* x, double& mean, double& variance) {
  mean = variance = 0;
  if (planes.count * planes.n == 0) return;
  const auto& loop = loops<T>();
  const double count = count_of(planes);
  mean = static_cast<double>(x[0]) + loop.sum(planes, x, x[0]) / count;
  const T around = static_cast<T>(mean);
  const double off = static_cast<double>(around) - mean;
  double squares = loop.square_sum(planes, x, around);
  if (!std::isfinite(squares)) {  // a square overflowed f32, or an element of x is NaN or infinite
    squares = 0;
    DoubleLoops::each(planes, [&](std::int64_t i) {
      const double d = static_cast<double>(x[i]) - static_cast<double>(around);
      squares += d * d;
    });
  }
  variance = squares / count - off * off;
  if (variance < 0) variance = 0;  // NaN passes
}

// Sums of g and of g (x - mean).
template <class T>
void channel_gradient_sums(const ChannelPlanes& planes, const T* g, const T* x, double mean,
                           double& sum_g, double& sum_g_x) {
  const T around = static_cast<T>(mean);
  loops<T>().gradient_sums(planes, g, x, around, &sum_g, &sum_g_x);
  sum_g_x += (static_cast<double>(around) - mean) * sum_g;
}

template <class T>
void statistics_typed(const Tensor& x, double* mean, double* variance) {
  const T* const from = x.data<T>();
  for_channels(x.shape(), [&](std::int64_t c, const ChannelPlanes& planes, std::int64_t at) {
    channel_statistics(planes, from + at, mean[c], variance[c]);
  });
}

void statistics_cpu(const Tensor& x, const Tensor& mean, const Tensor& variance) {
  double* const m = mean.data<double>();
  double* const v = variance.data<double>();
  if (x.dtype() == DType::f64) return statistics_typed<double>(x, m, v);
  statistics_typed<float>(x, m, v);
}

template <class T>
void apply_typed(const Tensor& x, const double* mean, const double* factor, const double* shift,
                 const Tensor& y) {
  const T* const from = x.data<T>();
  T* const to = y.data<T>();
  const auto& loop = loops<T>();
  for_planes(x.shape(), [&](std::int64_t c, const ChannelPlanes& plane, std::int64_t at) {
    const ChannelNorm<T> norm(mean[c], factor[c], shift[c]);
    loop.apply(plane, from + at, norm.mean, norm.factor, norm.shift, nullptr, false, 0, to + at);
  });
}

void apply_cpu(const Tensor& x, const Tensor& mean, const Tensor& factor, const Tensor& shift,
               const Tensor& y) {
  if (x.rank() == 5) return nchw16c_batch_norm_apply(x, mean, factor, shift, y);
  const double* const m = mean.data<double>();
  const double* const f = factor.data<double>();
  const double* const s = shift.data<double>();
  if (x.dtype() == DType::f64) return apply_typed<double>(x, m, f, s, y);
  apply_typed<float>(x, m, f, s, y);
}

template <class T>
void train_typed(const BatchNormTrainArgs& args) {
  const T* const x = args.x.data<T>();
  const T* const residual = args.residual.defined() ? args.residual.data<T>() : nullptr;
  const T* const weight = args.weight.data<T>();
  const T* const bias = args.bias.data<T>();
  T* const y = args.y.data<T>();
  double* const mean = args.mean.data<double>();
  double* const variance = args.variance.data<double>();
  double* const inverse = args.inverse_deviation.data<double>();
  const auto& loop = loops<T>();
  for_channels(args.x.shape(), [&](std::int64_t c, const ChannelPlanes& planes, std::int64_t at) {
    channel_statistics(planes, x + at, mean[c], variance[c]);
    inverse[c] = 1 / std::sqrt(variance[c] + args.eps);
    const ChannelNorm<T> norm(mean[c], inverse[c] * static_cast<double>(weight[c]),
                              static_cast<double>(bias[c]));
    loop.apply(planes, x + at, norm.mean, norm.factor, norm.shift,
               residual == nullptr ? nullptr : residual + at, args.relu, args.most, y + at);
  });
}

void train_cpu(const BatchNormTrainArgs& args) {
  if (args.x.rank() == 5) return nchw16c_batch_norm_train(args);
  if (args.x.dtype() == DType::f64) return train_typed<double>(args);
  train_typed<float>(args);
}

template <class T>
void sums_typed(const Tensor& dy, const Tensor& x, const double* mean, double* sum_dy,
                double* sum_dy_x) {
  const T* const pdy = dy.data<T>();
  const T* const px = x.data<T>();
  for_channels(x.shape(), [&](std::int64_t c, const ChannelPlanes& planes, std::int64_t at) {
    channel_gradient_sums(planes, pdy + at, px + at, mean[c], sum_dy[c], sum_dy_x[c]);
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
  const T* const pdy = dy.data<T>();
  const T* const px = x.data<T>();
  T* const to = dx.data<T>();
  const auto& loop = loops<T>();
  for_planes(x.shape(), [&](std::int64_t c, const ChannelPlanes& plane, std::int64_t at) {
    loop.gradient(plane, pdy + at, px + at, static_cast<T>(mean[c]), static_cast<T>(a[c]),
                  static_cast<T>(b[c]), static_cast<T>(d[c]), to + at);
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

template <class T>
void add_planes(const ChannelPlanes& planes, const T* from, T* to) {
  for (std::int64_t k = 0; k < planes.count; ++k) {
    for (std::int64_t i = 0; i < planes.n; ++i)
      to[k * planes.stride + i] += from[k * planes.stride + i];
  }
}
template <class T>
void copy_planes(const ChannelPlanes& planes, const T* from, T* to) {
  for (std::int64_t k = 0; from != to && k < planes.count; ++k) {
    std::copy_n(from + k * planes.stride, planes.n, to + k * planes.stride);
  }
}

template <class T>
void train_gradient_typed(const BatchNormTrainGradientArgs& args) {
  T* const dy = args.dy.data<T>();
  const T* const x = args.x.data<T>();
  const T* const y = args.y.defined() ? args.y.data<T>() : nullptr;
  const T* const weight = args.weight.data<T>();
  T* const beside = args.residual_gradient.defined() ? args.residual_gradient.data<T>() : nullptr;
  T* const dx = args.dx.defined() ? args.dx.data<T>() : nullptr;
  const double* const mean = args.mean.data<double>();
  const double* const inverse = args.inverse_deviation.data<double>();
  double* const sum_dy = args.sum_dy.data<double>();
  double* const sum_dy_x = args.sum_dy_x.data<double>();
  const auto& loop = loops<T>();
  for_channels(args.x.shape(), [&](std::int64_t c, const ChannelPlanes& planes, std::int64_t at) {
    if (y != nullptr) loop.mask(planes, dy + at, y + at, args.most, dy + at);
    channel_gradient_sums(planes, dy + at, x + at, mean[c], sum_dy[c], sum_dy_x[c]);
    if (beside != nullptr) {
      args.residual_accumulate ? add_planes(planes, dy + at, beside + at)
                               : copy_planes(planes, dy + at, beside + at);
    }
    if (dx == nullptr) return;
    const double i = inverse[c];
    const double f = static_cast<double>(weight[c]) * i;
    const double count = count_of(planes);
    loop.gradient(planes, dy + at, x + at, static_cast<T>(mean[c]), static_cast<T>(f),
                  static_cast<T>(-f * i * i * sum_dy_x[c] / count),
                  static_cast<T>(-f * sum_dy[c] / count), dx + at);
  });
}

void train_gradient_cpu(const BatchNormTrainGradientArgs& args) {
  if (args.x.rank() == 5) return nchw16c_batch_norm_train_gradient(args);
  if (args.x.dtype() == DType::f64) return train_gradient_typed<double>(args);
  train_gradient_typed<float>(args);
}

}  // namespace
CONVSCOPE_KERNEL(batch_norm_statistics_kernel, cpu, statistics_cpu)
CONVSCOPE_KERNEL(batch_norm_apply_kernel, cpu, apply_cpu)
CONVSCOPE_KERNEL(batch_norm_sums_kernel, cpu, sums_cpu)
CONVSCOPE_KERNEL(batch_norm_gradient_kernel, cpu, gradient_cpu)
CONVSCOPE_KERNEL(batch_norm_train_kernel, cpu, train_cpu)
CONVSCOPE_KERNEL(batch_norm_train_gradient_kernel, cpu, train_gradient_cpu)
}  // namespace convscope
