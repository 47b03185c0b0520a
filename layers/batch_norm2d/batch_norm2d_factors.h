// SPDX-License-Identifier: Apache-2.0
// batch_norm2d_factors.h: the arithmetic of batch norm on C values, one for each channel, which
// runs between passes over images. All tensors have the shape [C] and are on one device. Statistics
// and results are f64. Weights, biases and their gradients are f32 or f64.
#pragma once

#include <cstdint>

#include "framework/host_device.h"
#include "framework/kernel_slot.h"
#include "framework/tensor.h"

namespace convscope {

// Computes out = 1 / sqrt(variance + eps).
void batch_norm_inverse_deviation(const Tensor& variance, double eps, const Tensor& out);

// Computes factor and shift of (x - mean) inverse_deviation weight + bias = (x - mean) factor +
// shift. The mean is subtracted first: the products x factor and mean factor may be large and
// nearly equal, and rounding them would leave noise of 2^-24 |mean| factor.
void batch_norm_factors(const Tensor& weight, const Tensor& bias, const Tensor& inverse_deviation,
                        const Tensor& factor, const Tensor& shift);

// Does the same for one channel in the type T of x: (x - mean) factor + shift. The mean is rounded
// to T, and the shift compensates for the rounding.
template <class T>
struct ChannelNorm {
  T mean, factor, shift;
  CONVSCOPE_HOST_DEVICE ChannelNorm(double m, double f, double s)
      : mean(static_cast<T>(m)),
        factor(static_cast<T>(f)),
        shift(static_cast<T>(s + (static_cast<double>(mean) - m) * f)) {}
};

// Returns the factor that turns the variance of `count` numbers into its unbiased estimate. A
// single number has the variance 0, so its factor is 1.
CONVSCOPE_HOST_DEVICE inline double unbiased_by(double count) {
  return count > 1 ? count / (count - 1) : 1;
}

// Computes a, b and d of dx = a dy + b (x - mean) + d. In training mode mean and variance depend on
// x, too, which removes two projections from dx:
//   dx = weight i (dy - mean(dy) - xhat mean(dy xhat)),  xhat = (x - mean) i,
//   i = inverse deviation
// `count` is the number of elements of a channel. It is above 0 in training; in eval mode it is 0,
// and b and d become 0.
void batch_norm_gradient_factors(const Tensor& weight, const Tensor& inverse_deviation,
                                 const Tensor& sum_dy, const Tensor& sum_dy_x, double count,
                                 bool training, const Tensor& a, const Tensor& b, const Tensor& d);

// Sets running = (1 - momentum) running + momentum batch for mean and variance. The batch variance
// is first multiplied by unbiased_by(count). The running tensors are f32.
void batch_norm_move_running(const Tensor& mean, const Tensor& variance, double count,
                             double momentum, const Tensor& running_mean,
                             const Tensor& running_variance);

// Sets `to` to `sums` converted to the type of `to`. If `scale` is defined, `sums` is first
// multiplied by `scale`. With `accumulate` the result is added to `to` instead. The gradients of
// weight and bias are computed by this function.
void batch_norm_parameter_gradient(const Tensor& sums, const Tensor& scale, const Tensor& to,
                                   bool accumulate);

// Folds batch norm into a preceding convolution: w' = w i weight, b' = (b - mean) i weight + bias
// with i = 1 / sqrt(variance + eps). Then conv(x, w') + b' is the batch norm of conv(x, w) + b. w
// and to_w [C,...], b (undefined: none) and to_b [C]; f32. Rounding w' and b' causes an error of y
// of up to 2^-23 (|x|*|w'| + |mean| i weight), because no mean is subtracted. In return, inference
// saves one pass.
struct BatchNormFoldArgs {
  Tensor weight, bias, mean, variance;
  double eps = 0;
  Tensor w, b;
  Tensor to_w, to_b;  // assigned
};
void batch_norm_fold(const BatchNormFoldArgs& args);

// The kernels of these functions.
struct BatchNormFactorKernels {
  decltype(&batch_norm_inverse_deviation) inverse_deviation;
  decltype(&batch_norm_factors) factors;
  decltype(&batch_norm_gradient_factors) gradient_factors;
  decltype(&batch_norm_move_running) move_running;
  decltype(&batch_norm_parameter_gradient) parameter_gradient;
  decltype(&batch_norm_fold) fold;
};
extern CONVSCOPE_API KernelSlot<BatchNormFactorKernels()> batch_norm_factor_kernels;

}  // namespace convscope
