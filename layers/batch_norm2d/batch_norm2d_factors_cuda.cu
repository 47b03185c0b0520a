// SPDX-License-Identifier: Apache-2.0
// batch_norm2d_factors_cuda.cu: a thread for each channel.
#include "framework/cuda/launch.cuh"
#include "layers/batch_norm2d/batch_norm2d_factors.h"

namespace convscope {
namespace {

// Elements of type f32 or f64 as double.
struct Real {
  const void* data;
  bool wide;
  explicit Real(const Tensor& tensor)
      : data(tensor.raw_data()), wide(tensor.dtype() == DType::f64) {
    CONVSCOPE_CHECK(wide || tensor.dtype() == DType::f32, "batch_norm2d",
                    "expected f32 or f64, got ", tensor.str());
  }
  __device__ double operator[](std::int64_t i) const {
    return wide ? static_cast<const double*>(data)[i]
                : static_cast<double>(static_cast<const float*>(data)[i]);
  }
};

__global__ void inverse_deviation_channels(Real variance, double eps, double* out,
                                           std::int64_t count) {
  const std::int64_t c = global_thread();
  if (c < count) out[c] = 1 / ::sqrt(variance[c] + eps);
}

__global__ void factor_channels(Real weight, Real bias, const double* inverse, double* factor,
                                double* shift, std::int64_t count) {
  const std::int64_t c = global_thread();
  if (c >= count) return;
  factor[c] = inverse[c] * weight[c];
  shift[c] = bias[c];
}

__global__ void gradient_factor_channels(Real weight, const double* inverse, const double* sum_dy,
                                         const double* sum_dy_x, double count, bool training,
                                         double* a, double* b, double* d, std::int64_t channels) {
  const std::int64_t c = global_thread();
  if (c >= channels) return;
  const double i = inverse[c];
  const double f = weight[c] * i;
  a[c] = f;
  b[c] = training && count > 0 ? -f * i * i * sum_dy_x[c] / count : 0;
  d[c] = training && count > 0 ? -f * sum_dy[c] / count : 0;
}

__global__ void move_running_channels(const double* mean, const double* variance, double count,
                                      double momentum, float* m, float* v, std::int64_t channels) {
  const std::int64_t c = global_thread();
  if (c >= channels) return;
  const double keep = 1 - momentum;
  const double unbiased = variance[c] * unbiased_by(count);
  m[c] = static_cast<float>(keep * static_cast<double>(m[c]) + momentum * mean[c]);
  v[c] = static_cast<float>(keep * static_cast<double>(v[c]) + momentum * unbiased);
}

template <class T>
__global__ void parameter_gradient_channels(const double* sums, const double* scale, T* to,
                                            bool accumulate, std::int64_t channels) {
  const std::int64_t c = global_thread();
  if (c >= channels) return;
  const T value = static_cast<T>(scale != nullptr ? sums[c] * scale[c] : sums[c]);
  to[c] = accumulate ? to[c] + value : value;
}

void inverse_deviation_cuda(const Tensor& variance, double eps, const Tensor& out) {
  launch(inverse_deviation_channels, grid_for(out.numel()), Real(variance), eps, out.data<double>(),
         out.numel());
}

void factors_cuda(const Tensor& weight, const Tensor& bias, const Tensor& inverse_deviation,
                  const Tensor& factor, const Tensor& shift) {
  launch(factor_channels, grid_for(factor.numel()), Real(weight), Real(bias),
         inverse_deviation.data<double>(), factor.data<double>(), shift.data<double>(),
         factor.numel());
}

void gradient_factors_cuda(const Tensor& weight, const Tensor& inverse_deviation,
                           const Tensor& sum_dy, const Tensor& sum_dy_x, double count,
                           bool training, const Tensor& a, const Tensor& b, const Tensor& d) {
  launch(gradient_factor_channels, grid_for(a.numel()), Real(weight),
         inverse_deviation.data<double>(), sum_dy.data<double>(), sum_dy_x.data<double>(), count,
         training, a.data<double>(), b.data<double>(), d.data<double>(), a.numel());
}

void move_running_cuda(const Tensor& mean, const Tensor& variance, double count, double momentum,
                       const Tensor& running_mean, const Tensor& running_variance) {
  launch(move_running_channels, grid_for(mean.numel()), mean.data<double>(),
         variance.data<double>(), count, momentum, running_mean.data<float>(),
         running_variance.data<float>(), mean.numel());
}

void parameter_gradient_cuda(const Tensor& sums, const Tensor& scale, const Tensor& to,
                             bool accumulate) {
  const double* const factor = scale.defined() ? scale.data<double>() : nullptr;
  const std::int64_t count = sums.numel();
  if (to.dtype() == DType::f64) {
    return launch(parameter_gradient_channels<double>, grid_for(count), sums.data<double>(), factor,
                  to.data<double>(), accumulate, count);
  }
  launch(parameter_gradient_channels<float>, grid_for(count), sums.data<double>(), factor,
         to.data<float>(), accumulate, count);
}

// Folds each channel with one block.
__global__ void fold_channels(Real weight, Real bias, Real mean, Real variance, double eps,
                              const float* w, const float* b, std::int64_t row, float* to_w,
                              float* to_b) {
  const std::int64_t k = blockIdx.x;
  const double factor = weight[k] / ::sqrt(variance[k] + eps);
  for (std::int64_t i = k * row + threadIdx.x; i < (k + 1) * row; i += blockDim.x) {
    to_w[i] = static_cast<float>(factor * static_cast<double>(w[i]));
  }
  if (threadIdx.x != 0) return;
  const double before = b != nullptr ? static_cast<double>(b[k]) : 0.0;
  to_b[k] = static_cast<float>((before - mean[k]) * factor + bias[k]);
}

void fold_cuda(const BatchNormFoldArgs& args) {
  const std::int64_t channels = args.w.dim(0);
  launch(fold_channels, {.grid = dim3(static_cast<unsigned>(channels)), .block = dim3(128)},
         Real(args.weight), Real(args.bias), Real(args.mean), Real(args.variance), args.eps,
         args.w.data<float>(), args.b.defined() ? args.b.data<float>() : nullptr,
         args.w.numel() / channels, args.to_w.data<float>(), args.to_b.data<float>());
}

BatchNormFactorKernels kernels_cuda() {
  return {.inverse_deviation = inverse_deviation_cuda,
          .factors = factors_cuda,
          .gradient_factors = gradient_factors_cuda,
          .move_running = move_running_cuda,
          .parameter_gradient = parameter_gradient_cuda,
          .fold = fold_cuda};
}

}  // namespace
CONVSCOPE_KERNEL(batch_norm_factor_kernels, cuda, kernels_cuda)
}  // namespace convscope
