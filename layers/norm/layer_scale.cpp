// SPDX-License-Identifier: Apache-2.0
// layer_scale.cpp: multiplies each channel by a learned factor. On the CPU, the gradient of weight
// is a sum by channel, with the loops of batch norm.
#include "layers/norm/layer_scale.h"

#include <algorithm>

#include "framework/graph/simple_operation.h"
#include "framework/parallel.h"
#include "layers/batch_norm2d/batch_norm2d_nchw16c_simd.h"
#include "layers/batch_norm2d/batch_norm2d_simd.h"
#include "layers/dispatch/layout/block_slices.h"
#include "layers/layer_types.h"
#include "layers/norm/layer_norm.h"

namespace convscope {

constinit KernelSlot<void(const Tensor&, const Tensor&, const Tensor&)> layer_scale_kernel{
    "layer_scale"};
constinit KernelSlot<void(const Tensor&, const Tensor&, const Tensor&, const Tensor&)>
    layer_scale_weight_kernel{"layer_scale"};

namespace {

constexpr const char* kLayerScale = "layer_scale";

Shape checked_scale_input(const Shape& x, const Shape& weight) {
  CONVSCOPE_CHECK((x.rank() == 2 || x.rank() == 4) && weight.rank() == 1 && x[1] == weight[0],
                  kLayerScale, "expected x [N,C,H,W] or [N,C] with the C of weight [C], got ", x,
                  " and ", weight);
  return x;
}

class LayerScaleOperation final : public SimpleOperation {
 public:
  LayerScaleOperation() : SimpleOperation(kLayerScale, {.nchw16c = true, .nhwc = true}) {}
  Shape output_shape(const std::vector<Shape>& all) const override {
    return checked_scale_input(all[0], all[1]);
  }
  Keeps keeps(const std::vector<Shape>& all) const override {
    return {.inputs = true, .scratch = {{layer_norm_parts(all[0]), DType::f64}}};
  }
  void run(const Forward& a) const override {
    layer_scale_kernel.get(a.device())(a.x[0], a.x[1], a.y);
  }
  void run(const Backward& a) const override {
    if (a.dx[0].defined()) layer_scale_kernel.get(a.device())(a.dy, a.x[1], a.dx[0]);
    if (!a.dx[1].defined()) return;
    layer_scale_weight_kernel.get(a.device())(a.dy, a.x[0], a.scratch[0], a.dx[1]);
  }
};

// The planes of an image are one after the other: [C,pixels], or [C/16,pixels,16].
template <class T>
void scale_typed(const Tensor& x, const Tensor& weight, const Tensor& y) {
  if (x.numel() == 0) return;
  const std::int64_t lanes = x.rank() == 5 ? kChannelBlock : 1;
  const std::int64_t channels = weight.numel(), blocks = ceil_div(channels, lanes);
  const std::int64_t plane = x.numel() / (x.dim(0) * blocks);
  const std::int64_t grain = std::max<std::int64_t>(1, (1 << 14) / plane);
  parallel_for(x.dim(0) * blocks, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const T* const from = x.data<T>() + i * plane;
      T* const to = y.data<T>() + i * plane;
      const std::int64_t first = i % blocks * lanes;
      if (lanes == 1) {
        const T factor = weight.data<T>()[first];
        for (std::int64_t j = 0; j < plane; ++j) to[j] = from[j] * factor;
        continue;
      }
      T factors[kChannelBlock] = {};
      std::copy_n(weight.data<T>() + first, std::min(lanes, channels - first), factors);
      for (std::int64_t j = 0; j < plane; j += kChannelBlock) {
        for (std::int64_t l = 0; l < kChannelBlock; ++l) to[j + l] = from[j + l] * factors[l];
      }
    }
  });
}

void layer_scale_cpu(const Tensor& x, const Tensor& weight, const Tensor& y) {
  x.dtype() == DType::f64 ? scale_typed<double>(x, weight, y) : scale_typed<float>(x, weight, y);
}

void scale_blocked_weight(const Tensor& dy, const Tensor& x, const Tensor& dweight) {
  const BlockSlices slices(x.shape());
  slices.for_blocks([&](std::int64_t block) {
    constexpr float kZero[kChannelBlock] = {};
    double total[2 * kChannelBlock];
    slices.sum<2>(block, total, [&](std::int64_t at, std::int64_t pixels, double* sums) {
      nchw16c_batch_norm_kernels.get().gradient_sums(pixels, dy.data<float>() + at,
                                                     x.data<float>() + at, kZero, sums);
    });
    const std::int64_t first = block * kChannelBlock;
    for (std::int64_t c = first; c < std::min(first + kChannelBlock, dweight.numel()); ++c) {
      dweight.data<float>()[c] = static_cast<float>(total[kChannelBlock + c - first]);
    }
  });
}

void layer_scale_weight_cpu(const Tensor& dy, const Tensor& x, const Tensor&,
                            const Tensor& dweight) {
  if (x.rank() == 5) return scale_blocked_weight(dy, x, dweight);
  const std::int64_t channels = dweight.numel(), images = x.dim(0);
  const std::int64_t pixels = images == 0 ? 0 : x.numel() / (images * channels);
  const ChannelPlanes planes{.count = images, .stride = channels * pixels, .n = pixels};
  const std::int64_t grain = std::max<std::int64_t>(1, (1 << 14) / (1 + images * pixels));
  parallel_for(channels, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin; c < end; ++c) {
      const std::int64_t at = c * pixels;
      double sum = 0, product = 0;
      if (x.dtype() == DType::f32) {
        batch_norm_kernels.get().gradient_sums(planes, dy.data<float>() + at, x.data<float>() + at,
                                               0.0f, &sum, &product);
        dweight.data<float>()[c] = static_cast<float>(product);
        continue;
      }
      for (std::int64_t n = 0; n < images; ++n) {
        const std::int64_t first = at + n * planes.stride;
        for (std::int64_t i = first; i < first + pixels; ++i) {
          product += dy.data<double>()[i] * x.data<double>()[i];
        }
      }
      dweight.data<double>()[c] = product;
    }
  });
}

}  // namespace

CONVSCOPE_KERNEL(layer_scale_kernel, cpu, layer_scale_cpu)
CONVSCOPE_KERNEL(layer_scale_weight_kernel, cpu, layer_scale_weight_cpu)

Variable layer_scale(const Variable& x, const Variable& weight) {
  return apply(std::make_unique<LayerScaleOperation>(), {x, weight});
}

LayerScale::LayerScale(std::int64_t channels, double init, LayerContext& context) {
  weight_ = add_parameter("weight", Tensor::full({channels}, init, DType::f32, context.device));
}

Shape LayerScale::output_shape(const Shape& input) const {
  return checked_scale_input(input, weight_.shape());
}

CONVSCOPE_REGISTER_LAYER("layer_scale",
                         {.doc = "multiplies each channel by a learned factor",
                          .fields = {{.name = "init",
                                      .type = OptionType::number,
                                      .default_value = 1e-6,
                                      .doc = "the factor at the start of the training",
                                      .min = -1e6,
                                      .max = 1e6}},
                          .build = [](const Options& options, const Shape& input,
                                      LayerContext& context) -> std::shared_ptr<Module> {
                            CONVSCOPE_CHECK(input.rank() == 2 || input.rank() == 4, kLayerScale,
                                            "expected x [N,C,H,W] or [N,C], got ", input);
                            return std::make_shared<LayerScale>(input[1], options.number("init"),
                                                                context);
                          }})

}  // namespace convscope
