// SPDX-License-Identifier: Apache-2.0
// batch_norm2d_factors.cpp: the arithmetic of batch norm on C values, one for each channel, which
// runs between passes over images.
#include "layers/batch_norm2d/batch_norm2d_factors.h"

#include <cmath>

#include "layers/batch_norm2d/batch_norm2d_half.h"

namespace convscope {

constinit KernelSlot<BatchNormFactorKernels()> batch_norm_factor_kernels{"batch_norm2d"};
constinit KernelSlot<void(const BatchNormHalfArgs&)> batch_norm_half_kernel{"batch_norm2d"};
constinit KernelSlot<void(const BatchNormHalfGradientArgs&)> batch_norm_half_gradient_kernel{
    "batch_norm2d"};
constinit KernelSlot<void(const BatchNormHalfApplyArgs&)> batch_norm_half_apply_kernel{
    "batch_norm2d"};

namespace {

double at(const Tensor& values, std::int64_t c) { return values.data<double>()[c]; }

void inverse_deviation_cpu(const Tensor& variance, double eps, const Tensor& out) {
  for (std::int64_t c = 0; c < variance.numel(); ++c) {
    out.data<double>()[c] = 1 / std::sqrt(variance.at(c) + eps);
  }
}

void factors_cpu(const Tensor& weight, const Tensor& bias, const Tensor& inverse_deviation,
                 const Tensor& factor, const Tensor& shift) {
  for (std::int64_t c = 0; c < factor.numel(); ++c) {
    factor.data<double>()[c] = at(inverse_deviation, c) * weight.at(c);
    shift.data<double>()[c] = bias.at(c);
  }
}

void gradient_factors_cpu(const Tensor& weight, const Tensor& inverse_deviation,
                          const Tensor& sum_dy, const Tensor& sum_dy_x, double count, bool training,
                          const Tensor& a, const Tensor& b, const Tensor& d) {
  for (std::int64_t c = 0; c < a.numel(); ++c) {
    const double i = at(inverse_deviation, c);
    const double f = weight.at(c) * i;
    a.data<double>()[c] = f;
    b.data<double>()[c] = training && count > 0 ? -f * i * i * at(sum_dy_x, c) / count : 0;
    d.data<double>()[c] = training && count > 0 ? -f * at(sum_dy, c) / count : 0;
  }
}

void move_running_cpu(const Tensor& mean, const Tensor& variance, double count, double momentum,
                      const Tensor& running_mean, const Tensor& running_variance) {
  float* const m = running_mean.data<float>();
  float* const v = running_variance.data<float>();
  const double keep = 1 - momentum;
  for (std::int64_t c = 0; c < mean.numel(); ++c) {
    const double unbiased = at(variance, c) * unbiased_by(count);
    m[c] = static_cast<float>(keep * static_cast<double>(m[c]) + momentum * at(mean, c));
    v[c] = static_cast<float>(keep * static_cast<double>(v[c]) + momentum * unbiased);
  }
}

template <class T>
void parameter_gradient_typed(const Tensor& sums, const Tensor& scale, T* to, bool accumulate) {
  for (std::int64_t c = 0; c < sums.numel(); ++c) {
    const T value = static_cast<T>(scale.defined() ? at(sums, c) * at(scale, c) : at(sums, c));
    to[c] = accumulate ? to[c] + value : value;
  }
}

void parameter_gradient_cpu(const Tensor& sums, const Tensor& scale, const Tensor& to,
                            bool accumulate) {
  if (to.dtype() == DType::f64) {
    return parameter_gradient_typed(sums, scale, to.data<double>(), accumulate);
  }
  parameter_gradient_typed(sums, scale, to.data<float>(), accumulate);
}

void fold_cpu(const BatchNormFoldArgs& args) {
  const std::int64_t row = args.w.numel() / args.w.dim(0);
  const float* const from = args.w.data<float>();
  float* const out = args.to_w.data<float>();
  for (std::int64_t k = 0; k < args.w.dim(0); ++k) {
    const double factor = args.weight.at(k) / std::sqrt(args.variance.at(k) + args.eps);
    for (std::int64_t i = k * row; i < (k + 1) * row; ++i) {
      out[i] = static_cast<float>(factor * static_cast<double>(from[i]));
    }
    const double bias = args.b.defined() ? args.b.at(k) : 0.0;
    args.to_b.data<float>()[k] =
        static_cast<float>((bias - args.mean.at(k)) * factor + args.bias.at(k));
  }
}

BatchNormFactorKernels kernels_cpu() {
  return {.inverse_deviation = inverse_deviation_cpu,
          .factors = factors_cpu,
          .gradient_factors = gradient_factors_cpu,
          .move_running = move_running_cpu,
          .parameter_gradient = parameter_gradient_cpu,
          .fold = fold_cpu};
}

BatchNormFactorKernels kernels_for(const Tensor& tensor) {
  return batch_norm_factor_kernels.get(tensor.device())();
}

}  // namespace

void batch_norm_inverse_deviation(const Tensor& variance, double eps, const Tensor& out) {
  kernels_for(out).inverse_deviation(variance, eps, out);
}

void batch_norm_factors(const Tensor& weight, const Tensor& bias, const Tensor& inverse_deviation,
                        const Tensor& factor, const Tensor& shift) {
  kernels_for(factor).factors(weight, bias, inverse_deviation, factor, shift);
}

void batch_norm_gradient_factors(const Tensor& weight, const Tensor& inverse_deviation,
                                 const Tensor& sum_dy, const Tensor& sum_dy_x, double count,
                                 bool training, const Tensor& a, const Tensor& b, const Tensor& d) {
  kernels_for(a).gradient_factors(weight, inverse_deviation, sum_dy, sum_dy_x, count, training, a,
                                  b, d);
}

void batch_norm_move_running(const Tensor& mean, const Tensor& variance, double count,
                             double momentum, const Tensor& running_mean,
                             const Tensor& running_variance) {
  kernels_for(mean).move_running(mean, variance, count, momentum, running_mean, running_variance);
}

void batch_norm_parameter_gradient(const Tensor& sums, const Tensor& scale, const Tensor& to,
                                   bool accumulate) {
  kernels_for(to).parameter_gradient(sums, scale, to, accumulate);
}

void batch_norm_fold(const BatchNormFoldArgs& args) { kernels_for(args.to_w).fold(args); }

CONVSCOPE_KERNEL(batch_norm_factor_kernels, cpu, kernels_cpu)
}  // namespace convscope
