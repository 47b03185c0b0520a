// SPDX-License-Identifier: Apache-2.0
// batch_norm2d.cpp: normalises every channel to mean 0 and deviation 1 over the batch, then applies
// a learned scale and shift.
#include "layers/batch_norm2d/batch_norm2d.h"

#include "layers/batch_norm2d/batch_norm2d_factors.h"
#include "layers/plan/batch_norm_op.h"

namespace convscope {

constinit KernelSlot<void(const Tensor&, const Tensor&, const Tensor&)>
    batch_norm_statistics_kernel{"batch_norm2d"};
constinit KernelSlot<void(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                          const Tensor&)>
    batch_norm_apply_kernel{"batch_norm2d"};
constinit KernelSlot<void(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                          const Tensor&)>
    batch_norm_sums_kernel{"batch_norm2d"};
constinit KernelSlot<void(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                          const Tensor&, const Tensor&)>
    batch_norm_gradient_kernel{"batch_norm2d"};

namespace {

constexpr const char* kName = "batch_norm2d";

std::int64_t count_of(const Shape& x) { return x[0] * x[2] * x[3]; }

// Returns why a training step refuses x, or "" if it accepts x. The forward pass and
// why_not_trained() share this check.
std::string refusal_of_one_value(const Shape& x) {
  if (count_of(x) != 1) return "";
  return cat("expected more than one value for each channel while training because the ",
             "variance of one value is 0, got x ", x);
}

Tensor by_channel(std::int64_t channels, Device device) {
  return Tensor::empty({channels}, DType::f64, device);
}

void check(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  CONVSCOPE_CHECK(
      x.defined() && x.rank() == 4 && (x.dtype() == DType::f32 || x.dtype() == DType::f64), kName,
      "expected x [N,C,H,W] of type f32 or f64, got ", x.str());
  const Shape channels{x.dim(1)};
  CONVSCOPE_CHECK(weight.shape() == channels && bias.shape() == channels &&
                      weight.dtype() == x.dtype() && bias.dtype() == x.dtype() &&
                      weight.device() == x.device() && bias.device() == x.device(),
                  kName, "expected weight and bias [", x.dim(1),
                  "] of the type and on the device of x because x is ", x.str(), ", got ",
                  weight.str(), " and ", bias.str());
}

// y = (x - mean) inverse_deviation weight + bias
Tensor normalised(const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const BatchNormStatistics& statistics) {
  const std::int64_t channels = x.dim(1);
  const Tensor factor = by_channel(channels, x.device());
  const Tensor shift = by_channel(channels, x.device());
  batch_norm_factors(weight, bias, statistics.inverse_deviation, factor, shift);
  const Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  if (y.numel() > 0) {
    batch_norm_apply_kernel.get(x.device())(x, statistics.mean, factor, shift, y);
  }
  return y;
}

Tensor inverse_deviation(const Tensor& variance, double eps) {
  const Tensor out = by_channel(variance.numel(), variance.device());
  batch_norm_inverse_deviation(variance, eps, out);
  return out;
}

// Adds the gradients of weight and bias, assigns that of x.
void backward(const Tensor& dy, const Tensor& x, const Tensor& weight,
              const BatchNormStatistics& statistics, bool training, GradientSink& out) {
  const std::int64_t channels = x.dim(1);
  const auto count = static_cast<double>(count_of(x.shape()));
  const Tensor sum_dy = by_channel(channels, x.device());
  const Tensor sum_dy_x = by_channel(channels, x.device());
  batch_norm_sums_kernel.get(x.device())(dy, x, statistics.mean, sum_dy, sum_dy_x);
  if (out.wants(0)) {
    const Tensor a = by_channel(channels, x.device());
    const Tensor b = by_channel(channels, x.device());
    const Tensor d = by_channel(channels, x.device());
    batch_norm_gradient_factors(weight, statistics.inverse_deviation, sum_dy, sum_dy_x, count,
                                training, a, b, d);
    const Tensor dx = Tensor::empty(x.shape(), x.dtype(), x.device());
    if (dx.numel() > 0) {
      batch_norm_gradient_kernel.get(x.device())(dy, x, statistics.mean, a, b, d, dx);
    }
    out.add(0, dx);
  }
  if (out.wants(1)) {
    const Tensor dw = Tensor::empty({channels}, x.dtype(), x.device());
    batch_norm_parameter_gradient(sum_dy_x, statistics.inverse_deviation, dw, false);
    out.add(1, dw);
  }
  if (out.wants(2)) out.add(2, sum_dy.to(x.dtype()));
}

Variable normalise(const Variable& x, const Variable& weight, const Variable& bias,
                   const BatchNormStatistics& statistics, bool training) {
  const Tensor y = normalised(x.value(), weight.value(), bias.value(), statistics);
  return record(kName, y, {x, weight, bias},
                [x = x.value(), weight = weight.value(), statistics, training](const Tensor& dy,
                                                                               GradientSink& out) {
                  backward(dy, x, weight, statistics, training, out);
                });
}

}  // namespace

Variable batch_norm2d(const Variable& x, const Variable& weight, const Variable& bias, double eps,
                      BatchNormStatistics* statistics) {
  check(x.value(), weight.value(), bias.value());
  CONVSCOPE_CHECK(refusal_of_one_value(x.shape()).empty(), kName, refusal_of_one_value(x.shape()));
  BatchNormStatistics batch_statistics{.mean = by_channel(x.dim(1), x.device()),
                                       .variance = by_channel(x.dim(1), x.device()),
                                       .inverse_deviation = {}};
  batch_norm_statistics_kernel.get(x.device())(x.value(), batch_statistics.mean,
                                               batch_statistics.variance);
  batch_statistics.inverse_deviation = inverse_deviation(batch_statistics.variance, eps);
  if (statistics != nullptr) *statistics = batch_statistics;
  return normalise(x, weight, bias, batch_statistics, /*training=*/true);
}

Variable batch_norm2d(const Variable& x, const Variable& weight, const Variable& bias,
                      const Tensor& mean, const Tensor& variance, double eps) {
  check(x.value(), weight.value(), bias.value());
  const Shape channels{x.dim(1)};
  CONVSCOPE_CHECK(mean.shape() == channels && variance.shape() == channels, kName,
                  "expected mean and variance [", x.dim(1), "], got ", mean.str(), " and ",
                  variance.str());
  // Copies the running statistics, because the next training step updates them.
  const BatchNormStatistics running{
      .mean = mean.dtype() == DType::f64 ? mean.clone() : mean.to(DType::f64),
      .variance = {},
      .inverse_deviation = inverse_deviation(variance, eps)};
  return normalise(x, weight, bias, running, /*training=*/false);
}

BatchNorm2d::BatchNorm2d(std::int64_t channels, const BatchNormOptions& options,
                         LayerContext& context)
    : channels_(channels), options_(options) {
  CONVSCOPE_CHECK(
      channels >= 1 && options.eps >= 0 && options.momentum >= 0 && options.momentum <= 1, kName,
      "expected at least one channel, momentum in [0,1] and eps >= 0, got ", channels, ", ",
      options.momentum, " and ", options.eps);
  weight_ = add_parameter("weight", Tensor::full({channels}, 1.0, DType::f32, context.device));
  bias_ = add_parameter("bias", Tensor::zeros({channels}, DType::f32, context.device));
  add_buffer("running_mean", running_mean_, Tensor::zeros({channels}, DType::f32, context.device));
  add_buffer("running_var", running_var_,
             Tensor::full({channels}, 1.0, DType::f32, context.device));
}

Variable BatchNorm2d::forward(const Variable& x) {
  if (!is_training()) {
    return batch_norm2d(x, weight_, bias_, running_mean_, running_var_, options_.eps);
  }
  BatchNormStatistics batch;
  const Variable y = batch_norm2d(x, weight_, bias_, options_.eps, &batch);
  const auto count = static_cast<double>(count_of(x.shape()));
  if (count == 0) return y;  // an empty batch has no statistics
  batch_norm_move_running(batch.mean, batch.variance, count, options_.momentum, running_mean_,
                          running_var_);
  return y;
}

Shape BatchNorm2d::output_shape(const Shape& input) const {
  CONVSCOPE_CHECK(input.rank() == 4 && input[1] == channels_, kName, "expected x [N,", channels_,
                  ",H,W], got ", input);
  return input;
}

std::string BatchNorm2d::why_not_trained(const Shape& input) const {
  return refusal_of_one_value(output_shape(input));
}

int BatchNorm2d::describe(Graph& graph, int x) {
  if (x == kNoValue) return kNoValue;
  const std::string why = graph.training() ? why_not_trained(graph.shape(x)) : "";
  if (!why.empty()) return graph.refuse(why);
  const bool trains = weight_.requires_grad() || bias_.requires_grad();
  return graph.add(std::make_unique<BatchNormOp>(
                       BatchNormFold{weight_, bias_, running_mean_, running_var_, options_.eps},
                       options_.momentum),
                   {x}, output_shape(graph.shape(x)), trains);
}

std::vector<OptionField> BatchNormOptions::fields() {
  return {{.name = "momentum",
           .type = OptionType::number,
           .default_value = 0.1,
           .doc = "weight of the newest batch in the running statistics",
           .min = 0,
           .max = 1},
          {.name = "eps",
           .type = OptionType::number,
           .default_value = 1e-5,
           .doc = "constant added to the variance",
           .min = 0,
           .max = 1}};
}

BatchNormOptions BatchNormOptions::of(const Options& options) {
  return {.momentum = options.number("momentum"), .eps = options.number("eps")};
}

CONVSCOPE_REGISTER_LAYER(
    "batch_norm2d",
    {.doc = "normalises each channel over the batch, then scales and shifts it",
     .fields = BatchNormOptions::fields(),
     .build = [](const Options& options, const Shape& input,
                 LayerContext& context) -> std::shared_ptr<Module> {
       CONVSCOPE_CHECK(input.rank() == 4, kName, "expected x [N,C,H,W], got ", input);
       return std::make_shared<BatchNorm2d>(input[1], BatchNormOptions::of(options), context);
     }})

}  // namespace convscope
