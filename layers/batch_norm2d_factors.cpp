// SPDX-License-Identifier: Apache-2.0
#include "layers/batch_norm2d_factors.h"

#include <cmath>

namespace convscope {
namespace {

double at(const Tensor& values, std::int64_t c) { return values.data<double>()[c]; }

}  // namespace

void batch_norm_inverse_deviation(const Tensor& variance, double eps, const Tensor& out) {
  for (std::int64_t c = 0; c < variance.numel(); ++c) {
    out.data<double>()[c] = 1 / std::sqrt(variance.at(c) + eps);
  }
}

void batch_norm_factors(const Tensor& weight, const Tensor& bias, const Tensor& mean,
                        const Tensor& inverse_deviation, const Tensor& factor,
                        const Tensor& shift) {
  for (std::int64_t c = 0; c < factor.numel(); ++c) {
    const double f = at(inverse_deviation, c) * weight.at(c);
    factor.data<double>()[c] = f;
    shift.data<double>()[c] = bias.at(c) - at(mean, c) * f;
  }
}

void batch_norm_gradient_factors(const Tensor& weight, const Tensor& inverse_deviation,
                                 const Tensor& sum_dy, const Tensor& sum_dy_x, double count,
                                 bool training, const Tensor& a, const Tensor& b, const Tensor& d) {
  for (std::int64_t c = 0; c < a.numel(); ++c) {
    const double i = at(inverse_deviation, c);
    const double f = weight.at(c) * i;
    a.data<double>()[c] = f;
    b.data<double>()[c] = training && count > 0 ? -f * i * i * at(sum_dy_x, c) / count : 0;
    d.data<double>()[c] = training && count > 0 ? -f * at(sum_dy, c) / count : 0;
  }
}

void batch_norm_move_running(const Tensor& mean, const Tensor& variance, double count,
                             double momentum, const Tensor& running_mean,
                             const Tensor& running_variance) {
  float* const m = running_mean.data<float>();
  float* const v = running_variance.data<float>();
  const double keep = 1 - momentum;
  for (std::int64_t c = 0; c < mean.numel(); ++c) {
    const double unbiased = at(variance, c) * count / (count - 1);
    m[c] = static_cast<float>(keep * static_cast<double>(m[c]) + momentum * at(mean, c));
    v[c] = static_cast<float>(keep * static_cast<double>(v[c]) + momentum * unbiased);
  }
}

}  // namespace convscope
