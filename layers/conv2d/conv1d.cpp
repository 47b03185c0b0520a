// SPDX-License-Identifier: Apache-2.0
// conv1d.cpp: the convolution of rows of numbers: conv2d with a height of 1, so that every
// algorithm of conv2d serves it.
//
// Shapes      x [N,C,1,W] -> y [N,K,1,Q]; weight [K,C/G,1,S], bias [K]
// Formula     y[n,k,0,q] = b[k] + sum over c, s of
//                          x[n,c,0, q stride - left + s dilation] w[k,c,0,s]
// Parameters  out_channels, kernel_size, stride, dilation, groups, bias, algorithm, init  as conv2d
//             padding  elements on each side (default 0); same: as many as keep the width, the
//                      larger half on the right; causal: (kernel_size - 1) dilation on the left, so
//                      that y[q] reads x[0..q stride] only
// Usage       {type: conv1d, out_channels: 32, kernel_size: 3, padding: causal, dilation: 2}
// Source      torch.nn.Conv1d; causal padding: A. van den Oord et al.: WaveNet, 2016,
//             arXiv 1609.03499
#include <charconv>

#include "layers/conv2d/conv2d.h"

namespace convscope {
namespace {

constexpr const char* kConv1d = "conv1d";

void check_row(const Shape& x) {
  CONVSCOPE_CHECK(x.rank() == 4 && x[2] == 1, kConv1d,
                  "expected x [N,C,1,W], images with one row, got ", x);
}

class Conv1d final : public Conv2d {
 public:
  using Conv2d::Conv2d;
  std::string kind() const override { return kConv1d; }
  Shape output_shape(const Shape& input) const override {
    check_row(input);
    return Conv2d::output_shape(input);
  }
};

Padding2d row_padding(const std::string& text, std::int64_t kernel, std::int64_t stride,
                      std::int64_t dilation) {
  const std::int64_t reach = (kernel - 1) * dilation;
  if (text == "causal") return {.left = reach};
  if (text == "same") {
    CONVSCOPE_CHECK(stride == 1, kConv1d,
                    "expected stride 1 because padding is 'same', got stride ", stride);
    return {.left = reach / 2, .right = reach - reach / 2};
  }
  std::int64_t each = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), each);
  CONVSCOPE_CHECK(
      error == std::errc() && end == text.data() + text.size() && each >= 0 && each <= 1 << 20,
      kConv1d, "expected 'padding' to be 0 to 2^20, same or causal, got '", text, "'");
  return {.left = each, .right = each};
}

std::vector<OptionField> conv1d_fields() {
  std::vector<OptionField> out;
  for (OptionField field : conv2d_fields()) {
    if (field.name == "padding_mode") continue;
    if (field.name == "padding") {
      field = {.name = "padding",
               .type = OptionType::text,
               .default_value = std::string("0"),
               .doc = "elements on each side, or same (keeps the width), or causal (left only)",
               .min = 0,
               .max = 1 << 20};
    } else if (field.type == OptionType::integers) {
      const bool has_default = field.name != "kernel_size";
      field.type = OptionType::integer;
      if (has_default) field.default_value = std::int64_t{1};
      field.doc =
          field.name == "kernel_size" ? "kernel size in elements" : cat(field.name, " in elements");
    }
    out.push_back(std::move(field));
  }
  return out;
}

std::shared_ptr<Module> build_conv1d(const Options& options, const Shape& input,
                                     LayerContext& context) {
  check_row(input);
  Options as_image = options;
  const std::int64_t kernel = options.integer("kernel_size"), stride = options.integer("stride");
  const std::int64_t dilation = options.integer("dilation");
  as_image.set("kernel_size", std::vector<std::int64_t>{1, kernel});
  as_image.set("stride", std::vector<std::int64_t>{1, stride});
  as_image.set("dilation", std::vector<std::int64_t>{1, dilation});
  as_image.set("padding", std::vector<std::int64_t>{0});
  Conv2dOptions own = conv2d_options(as_image, input[1], kConv1d);
  own.params.padding = row_padding(options.text("padding"), kernel, stride, dilation);
  if (!options.has("algorithm") && context.conv_policy) {
    own.policy = context.conv_policy(context.layer_name);
  }
  own.name = context.layer_name;
  return std::make_shared<Conv1d>(own, context);
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_LAYER("conv1d", {.doc = "slides K small kernels over rows of numbers [N,C,1,W]",
                                    .fields = convscope::conv1d_fields(),
                                    .build = convscope::build_conv1d})
