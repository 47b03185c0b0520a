// SPDX-License-Identifier: Apache-2.0
// upsample.cpp: changes the size of an image.
#include "layers/upsample/upsample.h"

#include <cmath>

#include "framework/graph/simple_operation.h"
#include "layers/layer_types.h"

namespace convscope {

constinit KernelSlot<UpsampleKernel> upsample_kernel{"upsample"};
constinit KernelSlot<UpsampleKernel> upsample_gradient_kernel{"upsample"};

namespace {

constexpr const char* kUpsample = "upsample";
constexpr double kLargestSize = 1 << 20;

std::string_view name_of(UpsampleMode mode) {
  return mode == UpsampleMode::nearest ? "nearest" : "bilinear";
}

UpsampleAxis axis_of(std::int64_t in, std::int64_t out, const UpsampleOptions& options) {
  const auto size = static_cast<double>(in);
  double ratio = options.scale > 0 ? 1 / options.scale : size / static_cast<double>(out);
  if (options.align_corners) ratio = out > 1 ? (size - 1) / static_cast<double>(out - 1) : 0;
  return {in, out, ratio, options.mode, options.align_corners};
}

class UpsampleOperation final : public SimpleOperation {
 public:
  explicit UpsampleOperation(const UpsampleOptions& options)
      : SimpleOperation(kUpsample, {.nchw16c = true, .nhwc = true}), options_(options) {}
  std::string text() const override { return cat(kUpsample, " ", name_of(options_.mode)); }
  Shape output_shape(const std::vector<Shape>& x) const override {
    return options_.output_shape(x[0]);
  }
  void run(const Forward& a) const override {
    if (a.y.numel() > 0) upsample_kernel.get(a.device())(sizes(a.x[0], a.y), a.x[0], a.y);
  }
  void run(const Backward& a) const override {
    if (a.dy.numel() == 0) return;
    upsample_gradient_kernel.get(a.device())(sizes(a.dx[0], a.dy), a.dy, a.dx[0]);
  }

 private:
  UpsampleSizes sizes(const Tensor& x, const Tensor& y) const {
    return {.planes = x.dim(0) * x.dim(1),
            .lanes = x.rank() == 5 ? x.dim(4) : 1,
            .rows = axis_of(x.dim(2), y.dim(2), options_),
            .columns = axis_of(x.dim(3), y.dim(3), options_)};
  }
  UpsampleOptions options_;
};

}  // namespace

Shape UpsampleOptions::output_shape(const Shape& x) const {
  CONVSCOPE_CHECK(x.rank() == 4 && x[2] >= 1 && x[3] >= 1, kUpsample,
                  "expected x [N,C,H,W] with at least one pixel, got ", x);
  CONVSCOPE_CHECK((scale > 0) != (p > 0 && q > 0), kUpsample,
                  "expected either a scale or a size, got ",
                  scale > 0 ? "both" : "neither of them");
  CONVSCOPE_CHECK(!align_corners || mode == UpsampleMode::bilinear, kUpsample,
                  "expected mode bilinear because align_corners is set, got mode nearest");
  if (scale <= 0) return {x[0], x[1], p, q};
  const auto scaled = [&](std::int64_t size) {
    const double out = std::floor(static_cast<double>(size) * scale);
    CONVSCOPE_CHECK(out >= 1 && out <= kLargestSize, kUpsample,
                    "expected an output of 1 to 2^20 pixels along each axis, got ", out, " for x ",
                    x, " and scale ", scale);
    return static_cast<std::int64_t>(out);
  };
  return {x[0], x[1], scaled(x[2]), scaled(x[3])};
}

Variable upsample(const Variable& x, const UpsampleOptions& options) {
  return apply(std::make_unique<UpsampleOperation>(options), {x});
}

namespace {

std::shared_ptr<Module> build_upsample(const Options& options, const Shape&, LayerContext&) {
  UpsampleOptions out;
  if (options.has("scale")) out.scale = options.number("scale");
  if (options.has("size")) {
    const std::vector<std::int64_t>& size = options.integers("size");
    CONVSCOPE_CHECK(size.size() == 1 || size.size() == 2, kUpsample,
                    "expected 'size' to be one number or [height, width], got ",
                    to_text(options.get("size")));
    out.p = size.front();
    out.q = size.back();
  }
  const bool is_nearest = options.text("mode") == "nearest";
  out.mode = is_nearest ? UpsampleMode::nearest : UpsampleMode::bilinear;
  out.align_corners = options.flag("align_corners");
  return std::make_shared<Upsample>(out);
}

}  // namespace

CONVSCOPE_REGISTER_LAYER(
    "upsample",
    {.doc = "makes images larger, by the nearest pixel or a bilinear mean",
     .fields = {{.name = "scale",
                 .type = OptionType::number,
                 .doc = "factor of height and width; give either scale or size",
                 .min = 1e-3,
                 .max = 1024},
                {.name = "size",
                 .type = OptionType::integers,
                 .doc = "size of the output in pixels: one number or [height, width]",
                 .min = 1,
                 .max = kLargestSize},
                {.name = "mode",
                 .type = OptionType::text,
                 .default_value = std::string("nearest"),
                 .doc = "nearest: copy the nearest pixel; bilinear: mean of four pixels",
                 .choices = {"nearest", "bilinear"}},
                {.name = "align_corners",
                 .type = OptionType::boolean,
                 .default_value = false,
                 .doc = "bilinear: corner pixels keep their values"}},
     .build = build_upsample})

}  // namespace convscope
