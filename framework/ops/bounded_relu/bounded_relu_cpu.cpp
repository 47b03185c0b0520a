// SPDX-License-Identifier: Apache-2.0
// bounded_relu_cpu.cpp: divides a bounded ReLU into chunks. The f32 loops are in
// bounded_relu_simd.cpp, the f64 loops in this file.
#include "framework/ops/bounded_relu/bounded_relu.h"
#include "framework/ops/bounded_relu/bounded_relu_simd.h"
#include "framework/parallel.h"

namespace convscope {

constinit IsaTable<BoundedReluKernels> bounded_relu_kernels;

namespace {

constexpr std::int64_t kGrain = 1 << 15;  // as elementwise_cpu.cpp

void forward_cpu(const Tensor& x, double most, const Tensor&, const Tensor& y) {
  if (x.dtype() == DType::f64) {
    const double* const from = x.data<double>();
    double* const to = y.data<double>();
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      const double above = from[i] <= 0 ? 0 : from[i];
      to[i] = above > most ? most : above;
    }
    return;
  }
  const float* const from = x.data<float>();
  float* const to = y.data<float>();
  const auto kernel = bounded_relu_kernels.get().forward;
  parallel_for(x.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    kernel(from + begin, static_cast<float>(most), to + begin, end - begin);
  });
}

void gradient_cpu(const Tensor& y, const Tensor& dy, double most, const Tensor&, const Tensor& dx) {
  if (y.dtype() == DType::f64) {
    const double* const at = y.data<double>();
    const double* const from = dy.data<double>();
    double* const to = dx.data<double>();
    for (std::int64_t i = 0; i < y.numel(); ++i) {
      to[i] = at[i] <= 0 || at[i] >= most ? 0 : from[i];
    }
    return;
  }
  const float* const at = y.data<float>();
  const float* const from = dy.data<float>();
  float* const to = dx.data<float>();
  const auto kernel = bounded_relu_kernels.get().gradient;
  parallel_for(y.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    kernel(at + begin, from + begin, static_cast<float>(most), to + begin, end - begin);
  });
}

}  // namespace
CONVSCOPE_KERNEL(bounded_relu_kernel, cpu, forward_cpu)
CONVSCOPE_KERNEL(bounded_relu_gradient_kernel, cpu, gradient_cpu)
}  // namespace convscope
