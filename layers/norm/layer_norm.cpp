// SPDX-License-Identifier: Apache-2.0
// layer_norm.cpp: normalises the channels of each pixel, then applies a learned scale and shift.
#include "layers/norm/layer_norm.h"

#include <algorithm>

#include "framework/graph/simple_operation.h"
#include "layers/layer_types.h"

namespace convscope {

constinit KernelSlot<void(const LayerNormArgs&)> layer_norm_kernel{"layer_norm"};
constinit KernelSlot<void(const LayerNormGradientArgs&)> layer_norm_gradient_kernel{"layer_norm"};

Shape layer_norm_parts(const Shape& x) {
  const std::int64_t pixels = x.numel() / std::max<std::int64_t>(1, x[1]);
  return {std::clamp<std::int64_t>(ceil_div(pixels, kLayerNormPixels), 1, kLayerNormSlices), 3,
          x[1]};
}

namespace {

constexpr const char* kLayerNorm = "layer_norm";

Shape checked_input(const Shape& x, std::int64_t channels) {
  CONVSCOPE_CHECK((x.rank() == 2 || x.rank() == 4) && x[1] == channels && channels >= 1, kLayerNorm,
                  "expected x [N,", channels, ",H,W] or [N,", channels, "] because weight has ",
                  channels, " elements, got ", x);
  return x;
}

class LayerNormOperation final : public SimpleOperation {
 public:
  explicit LayerNormOperation(double eps)
      : SimpleOperation(kLayerNorm, {.nchw16c = true, .nhwc = true}), eps_(eps) {}
  TensorDesc bind(Graph& graph) override {
    statistics_ = graph.dtype(inputs[0]) == DType::f64 ? DType::f64 : DType::f32;
    return SimpleOperation::bind(graph);
  }
  Shape output_shape(const std::vector<Shape>& all) const override {
    CONVSCOPE_CHECK(all[1].rank() == 1 && all[1] == all[2], kLayerNorm,
                    "expected weight and bias [C], got ", all[1], " and ", all[2]);
    return checked_input(all[0], all[1][0]);
  }
  Keeps keeps(const std::vector<Shape>& all) const override {
    const std::int64_t pixels = all[0].numel() / std::max<std::int64_t>(1, all[0][1]);
    return {.inputs = true,
            .saved = {{Shape{pixels}, statistics_}, {Shape{pixels}, statistics_}},
            .scratch = {{layer_norm_parts(all[0]), DType::f64}}};
  }
  void run(const Forward& a) const override {
    layer_norm_kernel.get(a.device())({.x = a.x[0],
                                       .weight = a.x[1],
                                       .bias = a.x[2],
                                       .eps = eps_,
                                       .y = a.y,
                                       .mean = a.saved[0],
                                       .inverse = a.saved[1]});
  }
  void run(const Backward& a) const override {
    layer_norm_gradient_kernel.get(a.device())({.dy = a.dy,
                                                .x = a.x[0],
                                                .weight = a.x[1],
                                                .mean = a.saved[0],
                                                .inverse = a.saved[1],
                                                .parts = a.scratch[0],
                                                .dx = a.dx[0],
                                                .dweight = a.dx[1],
                                                .dbias = a.dx[2]});
  }

 private:
  double eps_;
  DType statistics_ = DType::f32;
};

}  // namespace

Variable layer_norm(const Variable& x, const Variable& weight, const Variable& bias, double eps) {
  return apply(std::make_unique<LayerNormOperation>(eps), {x, weight, bias});
}

LayerNorm::LayerNorm(std::int64_t channels, double eps, LayerContext& context)
    : channels_(channels), eps_(eps) {
  CONVSCOPE_CHECK(channels >= 1 && eps >= 0, kLayerNorm,
                  "expected at least one channel and eps >= 0, got ", channels, " and ", eps);
  weight_ = add_parameter("weight", Tensor::full({channels}, 1.0, DType::f32, context.device));
  bias_ = add_parameter("bias", Tensor::zeros({channels}, DType::f32, context.device));
}

Shape LayerNorm::output_shape(const Shape& input) const { return checked_input(input, channels_); }

CONVSCOPE_REGISTER_LAYER(
    "layer_norm", {.doc = "normalises the channels of each pixel, then scales and shifts them",
                   .fields = {{.name = "eps",
                               .type = OptionType::number,
                               .default_value = 1e-5,
                               .doc = "constant added to the variance",
                               .min = 0,
                               .max = 1}},
                   .build = [](const Options& options, const Shape& input,
                               LayerContext& context) -> std::shared_ptr<Module> {
                     CONVSCOPE_CHECK(input.rank() == 2 || input.rank() == 4, kLayerNorm,
                                     "expected x [N,C,H,W] or [N,F], got ", input);
                     return std::make_shared<LayerNorm>(input[1], options.number("eps"), context);
                   }})

}  // namespace convscope
