// SPDX-License-Identifier: Apache-2.0
// mobilenet_v2.cpp: the network of Sandler et al. (2018): inverted residual blocks. Such a block is
// narrow at its input and output, which are added up, and wide in the middle, where a depthwise
// convolution runs.
//
// Shapes      x [N,C,H,W] -> logits [N,classes];  224x224 images, stem imagenet, by features.<i>:
//             0 [N,32,112,112]  1 [N,16,112,112]  2-3 [N,24,56,56]  4-6 [N,32,28,28]
//             7-10 [N,64,14,14]  11-13 [N,96,14,14]  14-16 [N,160,7,7]  17 [N,320,7,7]
//             18 [N,1280,7,7]
// Layers      features, avgpool, flatten, classifier. features.0 is a 3x3 convolution, features.18
//             a 1x1 convolution, each with batch norm and relu6. The others are inverted residuals
//             (t, C' -> K, stride): 1x1 to t C' channels, bn, relu6 (not where t is 1); depthwise
//             3x3, bn, relu6; 1x1 to K channels, bn. x is added where the shape stays the same. The
//             narrow ends have no activation, which would lose information
// Names       of parameters and buffers are those of torchvision: "features.0.0.weight",
//             "features.2.conv.1.0.weight" (depthwise), "features.2.conv.3.bias" (the last bn),
//             "classifier.1.weight"; torchvision's num_batches_tracked has no counterpart
// Parameters  stem              imagenet (default): the first convolution and features.2, 4, 7, 14
//                               at stride 2; cifar: the first one at stride 1, for images of about
//                               32x32
//             width_multiplier  multiplies all numbers of channels, default 1. The products are
//                               rounded to multiples of 8, at most 10 % down. features.18 always
//                               has at least 1280 channels
//             dropout           probability of dropping an input of the last layer, default 0.2
//             Weights of convolutions are normal with deviation sqrt(2/fan_in).
// Usage       model: {type: mobilenet_v2, width_multiplier: 0.5}
// Paper       M. Sandler, A. Howard, M. Zhu, A. Zhmoginov, L.-C. Chen: MobileNetV2: Inverted
//             Residuals and Linear Bottlenecks, CVPR 2018, arXiv 1801.04381
#include <algorithm>
#include <array>

#include "layers/activation.h"
#include "layers/batch_norm2d/batch_norm2d.h"
#include "layers/conv2d/conv2d.h"
#include "layers/dropout.h"
#include "layers/flatten.h"
#include "layers/linear/linear.h"
#include "layers/models/layer_list.h"
#include "layers/pool2d/pool2d.h"
#include "layers/residual.h"

namespace convscope {
namespace {

constexpr const char* kMobileNetV2 = "mobilenet_v2";

// A row of table 2 of the paper: several equal blocks. The first block has the stride, the others
// have stride 1.
struct Stage {
  std::int64_t expansion, channels, blocks, stride;
};
constexpr std::array<Stage, 7> kStages{{{1, 16, 1, 1},
                                        {6, 24, 2, 2},
                                        {6, 32, 3, 2},
                                        {6, 64, 4, 2},
                                        {6, 96, 3, 1},
                                        {6, 160, 3, 2},
                                        {6, 320, 1, 1}}};

std::vector<OptionField> mobilenet_v2_fields() {
  return {stem_field("imagenet: first convolution at stride 2; cifar: at stride 1"),
          {.name = "width_multiplier",
           .type = OptionType::number,
           .default_value = 1.0,
           .doc = "factor on all channel counts, rounded to multiples of 8",
           .min = 0.01,
           .max = 16},
          dropout_field(0.2)};
}

// Returns the multiple of 8 nearest to `channels`, at least 8. If this multiple is more than 10 %
// below `channels`, returns the next one.
std::int64_t multiple_of_8(double channels) {
  const std::int64_t near =
      std::max<std::int64_t>(8, static_cast<std::int64_t>(channels + 4) / 8 * 8);
  return static_cast<double>(near) < 0.9 * channels ? near + 8 : near;
}

std::shared_ptr<Sequential> conv_norm_relu6(const PlainConv& sizes, const std::string& path,
                                            LayerContext& context) {
  auto out = std::make_shared<Sequential>();
  out->add("0", plain_conv(sizes, path + ".0", context));
  out->add("1", std::make_shared<BatchNorm2d>(sizes.out_channels, BatchNormOptions{}, context));
  out->add("2", std::make_shared<Activation>("relu6"));
  return out;
}

std::shared_ptr<Module> inverted_residual(std::int64_t in_channels, std::int64_t out_channels,
                                          std::int64_t stride, std::int64_t expansion,
                                          const std::string& path, LayerContext& context) {
  const std::int64_t wide = in_channels * expansion;
  auto body = std::make_shared<Sequential>();
  const auto next = [&] { return cat(body->size()); };
  if (expansion != 1) {
    body->add("0", conv_norm_relu6({.in_channels = in_channels, .out_channels = wide, .kernel = 1},
                                   path + ".conv.0", context));
  }
  body->add(
      next(),
      conv_norm_relu6({.in_channels = wide, .out_channels = wide, .stride = stride, .groups = wide},
                      cat(path, ".conv.", body->size()), context));
  body->add(next(), plain_conv({.in_channels = wide, .out_channels = out_channels, .kernel = 1},
                               cat(path, ".conv.", body->size()), context));
  body->add(next(), std::make_shared<BatchNorm2d>(out_channels, BatchNormOptions{}, context));
  if (stride == 1 && in_channels == out_channels) {
    return std::make_shared<Residual>(
        std::vector<std::pair<std::string, std::shared_ptr<Module>>>{{"conv", body}}, nullptr,
        Residual::End::sum);
  }
  auto out = std::make_shared<Sequential>();
  out->add("conv", body);
  return out;
}

std::shared_ptr<Module> build_mobilenet_v2(const Options& options, const Shape& input, int classes,
                                           LayerContext& context) {
  check_model_input(kMobileNetV2, input, classes);
  const double multiplier = options.number("width_multiplier");
  const auto scaled = [&](std::int64_t channels) {
    return multiple_of_8(static_cast<double>(channels) * multiplier);
  };
  auto features = std::make_shared<Sequential>();
  const auto path = [&] { return cat("features.", features->size()); };
  std::int64_t channels = scaled(32);
  const std::int64_t stride = options.text("stem") == "imagenet" ? 2 : 1;
  features->add(
      "0", conv_norm_relu6({.in_channels = input[1], .out_channels = channels, .stride = stride},
                           path(), context));
  for (const Stage& stage : kStages) {
    const std::int64_t out_channels = scaled(stage.channels);
    for (std::int64_t block = 0; block < stage.blocks; ++block) {
      features->add(cat(features->size()),
                    inverted_residual(channels, out_channels, block == 0 ? stage.stride : 1,
                                      stage.expansion, path(), context));
      channels = out_channels;
    }
  }
  const std::int64_t last = multiple_of_8(1280 * std::max(1.0, multiplier));
  features->add(cat(features->size()),
                conv_norm_relu6({.in_channels = channels, .out_channels = last, .kernel = 1},
                                path(), context));
  auto classifier = std::make_shared<Sequential>();
  classifier->add("0", std::make_shared<Dropout>(options.number("dropout"), context.seed,
                                                 context.next_stream++));
  classifier->add("1", std::make_shared<Linear>(
                           LinearOptions{.in_features = last, .out_features = classes}, context));
  const auto network = std::make_shared<Sequential>(kMobileNetV2);
  network->add("features", features);
  network->add("avgpool", std::make_shared<AdaptiveAvgPool2d>(1, 1));
  network->add("flatten", std::make_shared<Flatten>());
  network->add("classifier", classifier);
  return network;
}

}  // namespace

CONVSCOPE_REGISTER_MODEL(
    "mobilenet_v2", {.doc = "MobileNet v2: seventeen inverted residuals, each 1x1, depthwise, 1x1",
                     .fields = mobilenet_v2_fields(),
                     .build = build_mobilenet_v2})

}  // namespace convscope
