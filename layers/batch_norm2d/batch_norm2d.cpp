// SPDX-License-Identifier: Apache-2.0
// batch_norm2d.cpp: normalises every channel to mean 0 and deviation 1 over the batch, then applies
// a learned scale and shift.
#include "layers/batch_norm2d/batch_norm2d.h"

#include "framework/graph/apply.h"
#include "layers/batch_norm2d/batch_norm_op.h"

namespace convscope {

constinit BatchNormStatisticsSlot batch_norm_statistics_kernel{"batch_norm2d"};
constinit BatchNormApplySlot batch_norm_apply_kernel{"batch_norm2d"};
constinit BatchNormSumsSlot batch_norm_sums_kernel{"batch_norm2d"};
constinit BatchNormGradientSlot batch_norm_gradient_kernel{"batch_norm2d"};

namespace {

constexpr const char* kName = "batch_norm2d";

}  // namespace

Variable batch_norm2d(const Variable& x, const Variable& weight, const Variable& bias, double eps,
                      BatchNormStatistics* statistics) {
  return apply(std::make_unique<BatchNormOp>(Tensor(), Tensor(), eps, /*trains=*/true,
                                             /*momentum=*/0.0, statistics),
               {x, weight, bias});
}

Variable batch_norm2d(const Variable& x, const Variable& weight, const Variable& bias,
                      const Tensor& mean, const Tensor& variance, double eps) {
  return apply(std::make_unique<BatchNormOp>(mean, variance, eps, /*trains=*/false, 0.0),
               {x, weight, bias});
}

BatchNormLayer::BatchNormLayer(const char* name, std::int64_t channels,
                               const BatchNormOptions& options, LayerContext& context)
    : channels_(channels), options_(options) {
  CONVSCOPE_CHECK(
      channels >= 1 && options.eps >= 0 && options.momentum >= 0 && options.momentum <= 1, name,
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

BatchNorm2d::BatchNorm2d(std::int64_t channels, const BatchNormOptions& options,
                         LayerContext& context)
    : BatchNormLayer(kName, channels, options, context) {}

Variable BatchNorm2d::forward(const Variable& x) {
  if (x.graph() != nullptr && trains_on(x)) {
    const std::string why = why_not_trained(x.shape());
    if (!why.empty()) x.graph()->refuse(why);
  }
  return apply(std::make_unique<BatchNormOp>(running_mean_, running_var_, options_.eps,
                                             trains_on(x), options_.momentum),
               {x, weight_, bias_});
}

Shape BatchNorm2d::output_shape(const Shape& input) const {
  CONVSCOPE_CHECK(input.rank() == 4 && input[1] == channels_, kName, "expected x [N,", channels_,
                  ",H,W], got ", input);
  return input;
}

std::string BatchNorm2d::why_not_trained(const Shape& input) const {
  return refusal_of_one_value(output_shape(input));
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
