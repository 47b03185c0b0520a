// SPDX-License-Identifier: Apache-2.0
// elementwise_cpu.cpp: divides element-wise operations into chunks. The f32 loops are in
// elementwise_simd.cpp, the f64 loops in this file.
#include <cmath>

#include "framework/ops/broadcast.h"
#include "framework/ops/elementwise.h"
#include "framework/ops/elementwise_simd.h"
#include "framework/parallel.h"

namespace convscope {

constinit IsaTable<ElementwiseKernels> elementwise_kernels;

namespace {

// 32 Ki elements are 128 KiB and take a few microseconds. Starting threads takes about one
// microsecond.
constexpr std::int64_t kGrain = 1 << 15;

template <class Op>
void binary_f64(const double* a, const double* b, Repeat repeat, double* y, std::int64_t n, Op op) {
  const std::int64_t step_a = repeat == Repeat::a || repeat == Repeat::both ? 0 : 1;
  const std::int64_t step_b = repeat == Repeat::b || repeat == Repeat::both ? 0 : 1;
  for (std::int64_t i = 0; i < n; ++i) y[i] = op(a[i * step_a], b[i * step_b]);
}

void binary_row(BinaryOp op, const double* a, const double* b, Repeat repeat, double* y,
                std::int64_t n) {
  switch (op) {
    case BinaryOp::add:
      return binary_f64(a, b, repeat, y, n, [](double p, double q) { return p + q; });
    case BinaryOp::sub:
      return binary_f64(a, b, repeat, y, n, [](double p, double q) { return p - q; });
    case BinaryOp::mul:
      return binary_f64(a, b, repeat, y, n, [](double p, double q) { return p * q; });
    case BinaryOp::div:
      return binary_f64(a, b, repeat, y, n, [](double p, double q) { return p / q; });
  }
}

void binary_row(BinaryOp op, const float* a, const float* b, Repeat repeat, float* y,
                std::int64_t n) {
  elementwise_kernels.get().binary[static_cast<int>(op)](a, b, repeat, y, n);
}

double unary_f64(UnaryOp op, double x) {
  switch (op) {
    case UnaryOp::neg:
      return -x;
    case UnaryOp::exp:
      return std::exp(x);
    case UnaryOp::log:
      return std::log(x);
    case UnaryOp::sqrt:
      return std::sqrt(x);
    case UnaryOp::relu:
      return x <= 0 ? 0 : x;
    case UnaryOp::tanh:
      return std::tanh(x);
    case UnaryOp::sigmoid:
      return 1 / (1 + std::exp(-x));
  }
  return 0;
}

double gradient_f64(GradientOp op, double y, double dy) {
  switch (op) {
    case GradientOp::sqrt:
      return 0.5 * dy / y;
    case GradientOp::relu:
      return y <= 0 ? 0 : dy;
    case GradientOp::tanh:
      return dy * (1 - y * y);
    case GradientOp::sigmoid:
      return dy * (y * (1 - y));
  }
  return 0;
}

template <class T>
void binary_typed(BinaryOp op, const Tensor& a, const Tensor& b, const Tensor& y) {
  const BroadcastWalk walk(a.shape(), b.shape(), y.shape());
  const int inner = walk.rank - 1;
  const bool stays_a = walk.stride_a[inner] == 0;
  const bool stays_b = walk.stride_b[inner] == 0;
  const Repeat repeat = stays_a && stays_b ? Repeat::both
                        : stays_a          ? Repeat::a
                        : stays_b          ? Repeat::b
                                           : Repeat::none;
  const T* const pa = a.data<T>();
  const T* const pb = b.data<T>();
  T* const py = y.data<T>();
  parallel_for(y.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    walk.run(begin, end, [&](std::int64_t oa, std::int64_t ob, std::int64_t oy, std::int64_t n) {
      binary_row(op, pa + oa, pb + ob, repeat, py + oy, n);
    });
  });
}

void binary_cpu(BinaryOp op, const Tensor& a, const Tensor& b, const Tensor& y) {
  if (y.dtype() == DType::f64) return binary_typed<double>(op, a, b, y);
  binary_typed<float>(op, a, b, y);
}

void unary_cpu(UnaryOp op, const Tensor& x, const Tensor& y) {
  if (x.dtype() == DType::f64) {
    const double* const from = x.data<double>();
    double* const to = y.data<double>();
    for (std::int64_t i = 0; i < x.numel(); ++i) to[i] = unary_f64(op, from[i]);
    return;
  }
  const float* const from = x.data<float>();
  float* const to = y.data<float>();
  const auto kernel = elementwise_kernels.get().unary[static_cast<int>(op)];
  parallel_for(x.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    kernel(from + begin, to + begin, end - begin);
  });
}

void gradient_cpu(GradientOp op, const Tensor& saved, const Tensor& dy, const Tensor& dx) {
  if (dy.dtype() == DType::f64) {
    const double* const ps = saved.data<double>();
    const double* const pdy = dy.data<double>();
    double* const pdx = dx.data<double>();
    for (std::int64_t i = 0; i < dy.numel(); ++i) pdx[i] = gradient_f64(op, ps[i], pdy[i]);
    return;
  }
  const float* const ps = saved.data<float>();
  const float* const pdy = dy.data<float>();
  float* const pdx = dx.data<float>();
  const auto kernel = elementwise_kernels.get().gradient[static_cast<int>(op)];
  parallel_for(dy.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    kernel(ps + begin, pdy + begin, pdx + begin, end - begin);
  });
}

void scale_cpu(double factor, const Tensor& x, const Tensor& y) {
  if (x.dtype() == DType::f64) {
    const double* const from = x.data<double>();
    double* const to = y.data<double>();
    for (std::int64_t i = 0; i < x.numel(); ++i) to[i] = factor * from[i];
    return;
  }
  const float* const from = x.data<float>();
  float* const to = y.data<float>();
  const auto kernel = elementwise_kernels.get().scale;
  parallel_for(x.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    kernel(static_cast<float>(factor), from + begin, to + begin, end - begin);
  });
}

}  // namespace
CONVSCOPE_KERNEL(binary_kernel, cpu, binary_cpu)
CONVSCOPE_KERNEL(unary_kernel, cpu, unary_cpu)
CONVSCOPE_KERNEL(gradient_kernel, cpu, gradient_cpu)
CONVSCOPE_KERNEL(scale_kernel, cpu, scale_cpu)
}  // namespace convscope
