// SPDX-License-Identifier: Apache-2.0
// row_norm.cpp: batch norm of rows [n,C].
#include "layers/sparse_rows/row_norm.h"

#include "layers/batch_norm2d/batch_norm2d_factors.h"
#include "layers/sparse_rows/row_layers.h"
#include "layers/sparse_rows/row_sums.h"

namespace convscope {

constinit KernelSlot<void(const Tensor&, const Tensor&)> row_sums_kernel{"row_sums"};
constinit KernelSlot<void(const Tensor&, const Tensor&, const Tensor&)> row_moments_kernel{
    "sparse_batch_norm"};
constinit KernelSlot<void(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                          const Tensor&)>
    row_apply_kernel{"sparse_batch_norm"};
constinit KernelSlot<void(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                          const Tensor&)>
    row_gradient_sums_kernel{"sparse_batch_norm"};
constinit KernelSlot<void(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                          const Tensor&, const Tensor&)>
    row_gradient_kernel{"sparse_batch_norm"};

void row_sums(const Tensor& x, const Tensor& sums) {
  if (x.numel() == 0) return sums.zero();
  row_sums_kernel.get(x.device())(x, sums);
}

namespace {

constexpr const char* kName = "sparse_batch_norm";

Tensor by_channel(const Tensor& like) {
  return Tensor::empty({like.dim(1)}, DType::f64, like.device());
}

void check(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  CONVSCOPE_CHECK(
      x.defined() && x.rank() == 2 && (x.dtype() == DType::f32 || x.dtype() == DType::f64), kName,
      "expected rows x [n,C] of type f32 or f64, got ", x.str());
  const Shape channels{x.dim(1)};
  CONVSCOPE_CHECK(weight.shape() == channels && bias.shape() == channels &&
                      weight.dtype() == x.dtype() && bias.dtype() == x.dtype() &&
                      weight.device() == x.device() && bias.device() == x.device(),
                  kName, "expected weight and bias [", x.dim(1),
                  "] of the type and on the device of x because x is ", x.str(), ", got ",
                  weight.str(), " and ", bias.str());
}

// Adds the gradients of weight and bias, assigns that of x.
void backward(const Tensor& dy, const Tensor& x, const Tensor& weight,
              const BatchNormStatistics& statistics, bool training, GradientSink& out) {
  const Tensor sum_dy = by_channel(x), sum_dy_x = by_channel(x);
  if (x.numel() > 0) {
    row_gradient_sums_kernel.get(x.device())(dy, x, statistics.mean, sum_dy, sum_dy_x);
  } else {
    sum_dy.zero();
    sum_dy_x.zero();
  }
  if (out.wants(0)) {
    const Tensor dx = Tensor::empty(x.shape(), x.dtype(), x.device());
    if (dx.numel() > 0) {
      const Tensor a = by_channel(x), b = by_channel(x), d = by_channel(x);
      batch_norm_gradient_factors(weight, statistics.inverse_deviation, sum_dy, sum_dy_x,
                                  static_cast<double>(x.dim(0)), training, a, b, d);
      row_gradient_kernel.get(x.device())(dy, x, statistics.mean, a, b, d, dx);
    }
    out.add(0, dx);
  }
  if (out.wants(1)) {
    const Tensor dw = Tensor::empty({x.dim(1)}, x.dtype(), x.device());
    batch_norm_parameter_gradient(sum_dy_x, statistics.inverse_deviation, dw, false);
    out.add(1, dw);
  }
  if (out.wants(2)) out.add(2, sum_dy.to(x.dtype()));
}

Variable normalise(const Variable& x, const Variable& weight, const Variable& bias,
                   const BatchNormStatistics& statistics, bool training) {
  const Tensor& from = x.value();
  const Tensor y = Tensor::empty(from.shape(), from.dtype(), from.device());
  if (y.numel() > 0) {
    const Tensor factor = by_channel(from), shift = by_channel(from);
    batch_norm_factors(weight.value(), bias.value(), statistics.inverse_deviation, factor, shift);
    row_apply_kernel.get(from.device())(from, statistics.mean, factor, shift, y);
  }
  return record(kName, y, {x, weight, bias},
                [x = from, weight = weight.value(), statistics, training](const Tensor& dy,
                                                                          GradientSink& out) {
                  backward(dy, x, weight, statistics, training, out);
                });
}

}  // namespace

Variable row_norm(const Variable& x, const Variable& weight, const Variable& bias, double eps,
                  BatchNormStatistics* statistics) {
  check(x.value(), weight.value(), bias.value());
  BatchNormStatistics batch_statistics{.mean = by_channel(x.value()),
                                       .variance = by_channel(x.value()),
                                       .inverse_deviation = by_channel(x.value())};
  if (x.value().numel() > 0) {
    row_moments_kernel.get(x.device())(x.value(), batch_statistics.mean, batch_statistics.variance);
  } else {  // not read, but must be finite
    batch_statistics.mean.zero();
    batch_statistics.variance.fill(1);
  }
  batch_norm_inverse_deviation(batch_statistics.variance, eps, batch_statistics.inverse_deviation);
  if (statistics != nullptr) *statistics = batch_statistics;
  return normalise(x, weight, bias, batch_statistics, /*training=*/true);
}

Variable row_norm(const Variable& x, const Variable& weight, const Variable& bias,
                  const Tensor& mean, const Tensor& variance, double eps) {
  check(x.value(), weight.value(), bias.value());
  const Shape channels{x.dim(1)};
  CONVSCOPE_CHECK(mean.shape() == channels && variance.shape() == channels, kName,
                  "expected mean and variance [", x.dim(1), "], got ", mean.str(), " and ",
                  variance.str());
  // Copies the running statistics, because the next training step updates them.
  BatchNormStatistics running{
      .mean = mean.dtype() == DType::f64 ? mean.clone() : mean.to(DType::f64),
      .variance = {},
      .inverse_deviation = by_channel(x.value())};
  batch_norm_inverse_deviation(variance, eps, running.inverse_deviation);
  return normalise(x, weight, bias, running, /*training=*/false);
}

SparseBatchNorm::SparseBatchNorm(std::int64_t channels, const BatchNormOptions& options,
                                 LayerContext& context)
    : channels_(channels), options_(options) {
  CONVSCOPE_CHECK(
      channels >= 1 && options.eps >= 0 && options.momentum >= 0 && options.momentum <= 1, kName,
      "expected at least one channel, momentum in [0,1] and eps >= 0, got ", channels, ", ",
      options.momentum, " and ", options.eps);
  const auto full = [&](double value) {
    return Tensor::full({channels}, value, DType::f32, context.device);
  };
  weight_ = add_parameter("weight", full(1));
  bias_ = add_parameter("bias", full(0));
  add_buffer("running_mean", running_mean_, full(0));
  add_buffer("running_var", running_var_, full(1));
}

Variable SparseBatchNorm::forward(const Variable& x) {
  if (!is_training()) {
    return row_norm(x, weight_, bias_, running_mean_, running_var_, options_.eps);
  }
  BatchNormStatistics batch;
  const Variable y = row_norm(x, weight_, bias_, options_.eps, &batch);
  // A single row has no meaningful variance, so it does not change the running statistics.
  if (x.dim(0) > 1) {
    batch_norm_move_running(batch.mean, batch.variance, static_cast<double>(x.dim(0)),
                            options_.momentum, running_mean_, running_var_);
  }
  return y;
}

Shape SparseBatchNorm::output_shape(const Shape& input) const {
  CONVSCOPE_CHECK(input.rank() >= 2 && input[1] == channels_, kName, "expected rows of ", channels_,
                  " channels, got those of ", input);
  return input;
}

CONVSCOPE_REGISTER_LAYER("sparse_batch_norm",
                         {.doc = "batch norm over the active sites, then a scale and a shift",
                          .fields = BatchNormOptions::fields(),
                          .build = [](const Options& options, const Shape& input,
                                      LayerContext& context) -> std::shared_ptr<Module> {
                            expect_rows(kName, input, context);
                            return std::make_shared<SparseBatchNorm>(
                                input[1], BatchNormOptions::of(options), context);
                          },
                          .takes_rows = true})

}  // namespace convscope
