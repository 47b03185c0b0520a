// SPDX-License-Identifier: Apache-2.0
// mobilenet_v1.cpp: the network of Howard et al. (2017): a 3x3 convolution is split into a
// depthwise one (each channel separately) and a pointwise one (1x1, mixes the channels of a pixel).
//
// Shapes      x [N,C,H,W] -> logits [N,classes];  224x224 images, stem imagenet:
//             conv1 [N,32,112,112]  block1 [N,64,112,112]  block3 [N,128,56,56]
//             block5 [N,256,28,28]  block11 [N,512,14,14]  block13 [N,1024,7,7]
// Layers      conv1 bn1 relu1 block1 ... block13 avgpool flatten fc; a block is
//             depthwise 3x3, bn1, relu1, pointwise 1x1, bn2, relu2
// Names       "conv1.weight", "block3.depthwise.weight" [C,1,3,3], "block3.pointwise.weight"
//             [K,C,1,1], "block3.bn2.running_var", "fc.bias"
// Parameters  stem              imagenet (default): conv1 and blocks 2, 4, 6, 12 at stride 2;
//                               cifar: conv1 at stride 1, for images of about 32x32
//             width_multiplier  factor of all channels, each at least 8; default 1
//             Weights of convolutions are normal with deviation sqrt(2/fan_in).
// Usage       model: {type: mobilenet_v1, width_multiplier: 0.5}
// Paper       A. Howard et al.: MobileNets: Efficient Convolutional Neural Networks for Mobile
//             Vision Applications, 2017, arXiv 1704.04861
#include <algorithm>
#include <array>
#include <cmath>

#include "layers/activation.h"
#include "layers/batch_norm2d/batch_norm2d.h"
#include "layers/conv2d/conv2d.h"
#include "layers/flatten.h"
#include "layers/linear/linear.h"
#include "layers/models/layer_list.h"
#include "layers/pool2d/pool2d.h"
#include "layers/residual.h"

namespace convscope {
namespace {

constexpr const char* kName = "mobilenet_v1";

struct Block {
  std::int64_t channels;  // output channels
  std::int64_t stride;
};
constexpr std::array<Block, 13> kBlocks{{{64, 1},
                                         {128, 2},
                                         {128, 1},
                                         {256, 2},
                                         {256, 1},
                                         {512, 2},
                                         {512, 1},
                                         {512, 1},
                                         {512, 1},
                                         {512, 1},
                                         {512, 1},
                                         {1024, 2},
                                         {1024, 1}}};

std::vector<OptionField> fields() {
  return {stem_field("imagenet: first convolution at stride 2; cifar: at stride 1"),
          {.name = "width_multiplier",
           .type = OptionType::number,
           .default_value = 1.0,
           .doc = "factor on all channels",
           .min = 0.01,
           .max = 16}};
}

void add_norm_and_relu(Sequential& to, const std::string& number, std::int64_t channels,
                       LayerContext& context) {
  to.add("bn" + number, std::make_shared<BatchNorm2d>(channels, BatchNormOptions{}, context));
  to.add("relu" + number, std::make_shared<Activation>("relu"));
}

std::shared_ptr<Sequential> separable_block(std::int64_t in_channels, const Block& block,
                                            const std::string& path, LayerContext& context) {
  auto out = std::make_shared<Sequential>();
  out->add("depthwise", plain_conv({.in_channels = in_channels,
                                    .out_channels = in_channels,
                                    .stride = block.stride,
                                    .groups = in_channels},
                                   path + ".depthwise", context));
  add_norm_and_relu(*out, "1", in_channels, context);
  out->add("pointwise",
           plain_conv({.in_channels = in_channels, .out_channels = block.channels, .kernel = 1},
                      path + ".pointwise", context));
  add_norm_and_relu(*out, "2", block.channels, context);
  return out;
}

std::shared_ptr<Module> build(const Options& options, const Shape& input, int classes,
                              LayerContext& context) {
  check_model_input(kName, input, classes);
  const double multiplier = options.number("width_multiplier");
  const auto scaled = [&](std::int64_t channels) {
    return std::max<std::int64_t>(8, std::llround(static_cast<double>(channels) * multiplier));
  };
  const auto network = std::make_shared<Sequential>(kName);
  std::int64_t channels = scaled(32);
  network->add("conv1", plain_conv({.in_channels = input[1],
                                    .out_channels = channels,
                                    .stride = options.text("stem") == "imagenet" ? 2 : 1},
                                   "conv1", context));
  add_norm_and_relu(*network, "1", channels, context);
  for (std::size_t i = 0; i < kBlocks.size(); ++i) {
    const Block block{scaled(kBlocks[i].channels), kBlocks[i].stride};
    const std::string path = cat("block", i + 1);
    network->add(path, separable_block(channels, block, path, context));
    channels = block.channels;
  }
  network->add("avgpool", std::make_shared<AdaptiveAvgPool2d>(1, 1));
  network->add("flatten", std::make_shared<Flatten>());
  network->add("fc", std::make_shared<Linear>(
                         LinearOptions{.in_features = channels, .out_features = classes}, context));
  return network;
}

}  // namespace

CONVSCOPE_REGISTER_MODEL("mobilenet_v1",
                         {.doc = "MobileNet v1: thirteen pairs of depthwise and 1x1 convolutions",
                          .fields = fields(),
                          .build = build})

}  // namespace convscope
