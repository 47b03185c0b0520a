// SPDX-License-Identifier: Apache-2.0
// group_norm_cpu.cpp: group norm on the CPU, with the loops of batch norm. One thread processes one
// group of one image, whose elements are contiguous. The gradients of weight and bias are added
// image by image, in order.
#include <algorithm>
#include <cmath>

#include "framework/parallel.h"
#include "layers/batch_norm2d/batch_norm2d_simd.h"
#include "layers/norm/group_norm.h"

namespace convscope {
namespace {

// f64 versions of the loops of batch_norm2d_simd.cpp over one plane, for gradient checks.
struct DoublePlane {
  static double sum(const ChannelPlanes& plane, const double* x, double shift) {
    double total = 0;
    for (std::int64_t i = 0; i < plane.n; ++i) total += x[i] - shift;
    return total;
  }
  static double square_sum(const ChannelPlanes& plane, const double* x, double mean) {
    double total = 0;
    for (std::int64_t i = 0; i < plane.n; ++i) total += (x[i] - mean) * (x[i] - mean);
    return total;
  }
  static void gradient_sums(const ChannelPlanes& plane, const double* g, const double* x,
                            double mean, double* sum_g, double* sum_g_x) {
    *sum_g = *sum_g_x = 0;
    for (std::int64_t i = 0; i < plane.n; ++i) {
      *sum_g += g[i];
      *sum_g_x += g[i] * (x[i] - mean);
    }
  }
  static void apply(const ChannelPlanes& plane, const double* x, double mean, double factor,
                    double shift, const double*, bool, double, double* y) {
    for (std::int64_t i = 0; i < plane.n; ++i) y[i] = (x[i] - mean) * factor + shift;
  }
  static void gradient(const ChannelPlanes& plane, const double* dy, const double* x, double mean,
                       double a, double b, double d, double* dx) {
    for (std::int64_t i = 0; i < plane.n; ++i) dx[i] = a * dy[i] + (b * (x[i] - mean) + d);
  }
};

template <class T>
decltype(auto) plane_loops() {
  if constexpr (sizeof(T) == sizeof(double)) {
    return DoublePlane{};
  } else {
    return batch_norm_kernels.get();
  }
}

// Calls body(n, group) in parallel.
template <class Body>
void for_groups(const GroupNormSizes& size, const Body& body) {
  const std::int64_t grain =
      std::max<std::int64_t>(1, (1 << 14) / std::max<std::int64_t>(1, size.group_elements()));
  parallel_for(size.n * size.groups, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) body(i / size.groups, i % size.groups);
  });
}

template <class T>
void group_forward(const GroupNormArgs& a) {
  const GroupNormSizes& size = a.size;
  const auto& loops = plane_loops<T>();
  const std::int64_t elements = size.group_elements();
  const ChannelPlanes whole{.count = 1, .stride = 0, .n = elements};
  const ChannelPlanes plane{.count = 1, .stride = 0, .n = size.pixels};
  if (elements == 0) return;
  for_groups(size, [&](std::int64_t n, std::int64_t group) {
    const std::int64_t first = (n * size.groups + group) * elements;
    const T* const x = a.x.data<T>() + first;
    const auto count = static_cast<double>(elements);
    const double mean = static_cast<double>(x[0]) + loops.sum(whole, x, x[0]) / count;
    const T around = static_cast<T>(mean);
    const double off = static_cast<double>(around) - mean;
    const double squares = loops.square_sum(whole, x, around) / count - off * off;
    const double inverse = 1 / std::sqrt((squares < 0 ? 0 : squares) + a.eps);
    for (std::int64_t c = 0; c < size.group_channels(); ++c) {
      const std::int64_t channel = group * size.group_channels() + c;
      const double factor = static_cast<double>(a.weight.data<T>()[channel]) * inverse;
      loops.apply(plane, x + c * size.pixels, around, static_cast<T>(factor),
                  static_cast<T>(static_cast<double>(a.bias.data<T>()[channel]) + factor * off),
                  nullptr, /*relu=*/false, T{0}, a.y.data<T>() + first + c * size.pixels);
    }
    if (!a.mean.defined()) return;
    a.mean.data<double>()[n * size.groups + group] = mean;
    a.inverse.data<double>()[n * size.groups + group] = inverse;
  });
}

// The sums over the planes of one group, and dx.
template <class T>
void group_gradient(const GroupNormGradientArgs& a, std::int64_t n, std::int64_t group) {
  const GroupNormSizes& size = a.size;
  const auto& loops = plane_loops<T>();
  const ChannelPlanes plane{.count = 1, .stride = 0, .n = size.pixels};
  const double mean = a.mean.data<double>()[n * size.groups + group];
  const double inverse = a.inverse.data<double>()[n * size.groups + group];
  const T around = static_cast<T>(mean);
  double g = 0, gu = 0;  // the means over the group of g = dy weight and of g u
  const auto each = [&](const auto& body) {
    for (std::int64_t c = 0; c < size.group_channels(); ++c) {
      const std::int64_t channel = group * size.group_channels() + c;
      body(channel, (n * size.channels + channel) * size.pixels);
    }
  };
  each([&](std::int64_t channel, std::int64_t at) {
    double sum = 0, sum_x = 0;
    loops.gradient_sums(plane, a.dy.data<T>() + at, a.x.data<T>() + at, around, &sum, &sum_x);
    const double sum_u = (sum_x + (static_cast<double>(around) - mean) * sum) * inverse;
    double* const to = a.sums.data<double>() + n * size.channels + channel;
    to[0] = sum;
    to[size.n * size.channels] = sum_u;
    g += static_cast<double>(a.weight.data<T>()[channel]) * sum;
    gu += static_cast<double>(a.weight.data<T>()[channel]) * sum_u;
  });
  if (!a.dx.defined()) return;
  const auto count = static_cast<double>(size.group_elements());
  const double slope = -inverse * inverse * gu / count;
  const double shift = -inverse * g / count + slope * (static_cast<double>(around) - mean);
  each([&](std::int64_t channel, std::int64_t at) {
    loops.gradient(plane, a.dy.data<T>() + at, a.x.data<T>() + at, around,
                   static_cast<T>(static_cast<double>(a.weight.data<T>()[channel]) * inverse),
                   static_cast<T>(slope), static_cast<T>(shift), a.dx.data<T>() + at);
  });
}

template <class T>
void group_backward(const GroupNormGradientArgs& a) {
  const GroupNormSizes& size = a.size;
  for_groups(size, [&](std::int64_t n, std::int64_t group) { group_gradient<T>(a, n, group); });
  for (const bool is_bias : {true, false}) {
    const Tensor& to = is_bias ? a.dbias : a.dweight;
    if (!to.defined()) continue;
    const double* const sums = a.sums.data<double>() + (is_bias ? 0 : size.n * size.channels);
    for (std::int64_t c = 0; c < size.channels; ++c) {
      double total = 0;
      for (std::int64_t n = 0; n < size.n; ++n) total += sums[n * size.channels + c];
      to.data<T>()[c] = static_cast<T>(total);
    }
  }
}

void group_norm_cpu(const GroupNormArgs& a) {
  a.x.dtype() == DType::f64 ? group_forward<double>(a) : group_forward<float>(a);
}

void group_norm_gradient_cpu(const GroupNormGradientArgs& a) {
  a.x.dtype() == DType::f64 ? group_backward<double>(a) : group_backward<float>(a);
}

}  // namespace
CONVSCOPE_KERNEL(group_norm_kernel, cpu, group_norm_cpu)
CONVSCOPE_KERNEL(group_norm_gradient_kernel, cpu, group_norm_gradient_cpu)
}  // namespace convscope
