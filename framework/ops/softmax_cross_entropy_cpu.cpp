// SPDX-License-Identifier: Apache-2.0
// softmax_cross_entropy_cpu.cpp: softmax, cross-entropy and their gradient on the CPU, row by row.
#include <algorithm>
#include <cmath>

#include "framework/ops/softmax_cross_entropy.h"
#include "framework/ops/softmax_simd.h"
#include "framework/parallel.h"

namespace convscope {

constinit IsaTable<SoftmaxKernels> softmax_kernels;

namespace {

constexpr std::int64_t kGrain = 1 << 13;  // elements per chunk; small, because exp is slow

void forward_f64(const double* x, const std::int32_t* labels, std::int64_t rows, std::int64_t k,
                 double* y, double* losses) {
  for (std::int64_t n = 0; n < rows; ++n, x += k, y += k) {
    const double m = *std::max_element(x, x + k);
    double total = 0;
    for (std::int64_t j = 0; j < k; ++j) total += y[j] = std::exp(x[j] - m);
    for (std::int64_t j = 0; j < k; ++j) y[j] /= total;
    if (losses != nullptr) losses[n] = std::log(total) - (x[labels[n]] - m);
  }
}

void softmax_cpu(const Tensor& x, const Tensor& labels, const Tensor& y, const Tensor& losses) {
  const std::int64_t rows = x.shape()[0];
  const std::int64_t k = x.shape()[1];
  if (rows == 0 || k == 0) return;
  const std::int32_t* const label = losses.defined() ? labels.data<std::int32_t>() : nullptr;
  if (x.dtype() == DType::f64) {
    return forward_f64(x.data<double>(), label, rows, k, y.data<double>(),
                       losses.defined() ? losses.data<double>() : nullptr);
  }
  const float* const from = x.data<float>();
  float* const to = y.data<float>();
  float* const loss = losses.defined() ? losses.data<float>() : nullptr;
  const auto forward = softmax_kernels.get().forward;
  parallel_for(rows, std::max<std::int64_t>(1, kGrain / k),
               [&](std::int64_t begin, std::int64_t end) {
                 forward(from + begin * k, label == nullptr ? nullptr : label + begin, end - begin,
                         k, to + begin * k, loss == nullptr ? nullptr : loss + begin);
               });
}

void gradient_cpu(const Tensor& y, const Tensor& labels, double factor, const Tensor& dx) {
  const std::int64_t rows = y.shape()[0];
  const std::int64_t k = y.shape()[1];
  const std::int32_t* const label = labels.data<std::int32_t>();
  if (y.dtype() == DType::f64) {
    const double* const from = y.data<double>();
    double* const to = dx.data<double>();
    for (std::int64_t i = 0; i < rows * k; ++i) {
      to[i] = (from[i] - (i % k == label[i / k] ? 1.0 : 0.0)) * factor;
    }
    return;
  }
  const float* const from = y.data<float>();
  float* const to = dx.data<float>();
  const auto gradient = softmax_kernels.get().gradient;
  parallel_for(rows, std::max<std::int64_t>(1, 4 * kGrain / k),
               [&](std::int64_t begin, std::int64_t end) {
                 gradient(from + begin * k, label + begin, end - begin, k,
                          static_cast<float>(factor), to + begin * k);
               });
}

template <class T>
void argmax_typed(const Tensor& x, const Tensor& y) {
  const std::int64_t k = x.shape()[1];
  const T* row = x.data<T>();
  std::int32_t* const out = y.data<std::int32_t>();
  for (std::int64_t n = 0; n < x.shape()[0]; ++n, row += k) {
    std::int64_t best = 0;
    for (std::int64_t j = 1; j < k; ++j) {
      if (row[j] > row[best] || (row[j] != row[j] && row[best] == row[best])) best = j;
    }
    out[n] = static_cast<std::int32_t>(best);
  }
}

void argmax_cpu(const Tensor& x, const Tensor& y) {
  if (x.dtype() == DType::f64) return argmax_typed<double>(x, y);
  argmax_typed<float>(x, y);
}

void multiply_by_cpu(const double* factor, const Tensor& x) {
  float* const to = x.data<float>();
  for (std::int64_t i = 0; i < x.numel(); ++i) to[i] *= static_cast<float>(*factor);
}

void count_equal_cpu(const Tensor& predicted, const Tensor& labels, const Tensor& out) {
  const std::int32_t* const a = predicted.data<std::int32_t>();
  const std::int32_t* const b = labels.data<std::int32_t>();
  std::int32_t count = 0;
  for (std::int64_t n = 0; n < labels.numel(); ++n) count += a[n] == b[n] ? 1 : 0;
  *out.data<std::int32_t>() = count;
}

}  // namespace
CONVSCOPE_KERNEL(multiply_by_kernel, cpu, multiply_by_cpu)
CONVSCOPE_KERNEL(count_equal_kernel, cpu, count_equal_cpu)
CONVSCOPE_KERNEL(softmax_kernel, cpu, softmax_cpu)
CONVSCOPE_KERNEL(softmax_gradient_kernel, cpu, gradient_cpu)
CONVSCOPE_KERNEL(argmax_kernel, cpu, argmax_cpu)
}  // namespace convscope
