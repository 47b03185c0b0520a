// SPDX-License-Identifier: Apache-2.0
// convnext_tiny.cpp: ConvNeXt-T: a convolutional network with the habits of transformers: few norms
// and activations, layer norm, GELU, and 7x7 depthwise convolutions.
//
// Shapes      x [N,C,H,W] -> logits [N,classes];  224x224 images, stem imagenet:
//             features.1 [N,96,56,56]  features.3 [N,192,28,28]  features.5 [N,384,14,14]
//             features.7 [N,768,7,7]
// Layers      a block: depthwise 7x7, layer norm over the channels, 1x1 to 4 times the channels,
//             GELU, 1x1 back, a learned factor of each channel; then x is added. In training, a
//             block is skipped for some images
// Names       as in torchvision: "features.1.0.block.0.weight". The shapes of some parameters
//             differ: block.3 and block.5 are 1x1 convolutions [K,C,1,1] here and linear layers
//             [K,C] there; layer_scale.weight is [C] here and layer_scale [C,1,1] there
// Parameters  stem              imagenet (default): 4x4 at stride 4; cifar: 3x3 at stride 1
//             stochastic_depth  probability to skip the last block, default 0.1
// Usage       model: {type: convnext_tiny}
// Paper       Z. Liu et al.: A ConvNet for the 2020s, CVPR 2022, arXiv 2201.03545
#include "layers/models/layer_list.h"

namespace convscope {
namespace {

constexpr const char* kName = "convnext_tiny";

struct Stage {
  std::int64_t channels, blocks;
};
constexpr Stage kStages[] = {{96, 3}, {192, 3}, {384, 9}, {768, 3}};
constexpr double kBlocks = 18;

std::string norm(LayerList& net, const std::string& name, const std::string& from) {
  return net.add("layer_norm", name, {from}, {{"eps", 1e-6}});
}

std::string block(LayerList& net, const std::string& path, const std::string& x,
                  std::int64_t channels, double skip) {
  const std::string part = path + ".block.";
  std::string y = net.conv(
      part + "0", x, {.out_channels = channels, .kernel = 7, .groups = channels, .bias = true});
  y = norm(net, part + "2", y);
  y = net.conv(part + "3", y, {.out_channels = 4 * channels, .bias = true});
  y = net.add("gelu", part + "4", {y});
  y = net.conv(part + "5", y, {.out_channels = channels, .bias = true});
  y = net.add("layer_scale", path + ".layer_scale", {y});
  if (skip > 0) {
    y = net.add("stochastic_depth", path + ".stochastic_depth", {y}, {{"probability", skip}});
  }
  return net.add("add", path + ".add", {y, x});
}

std::shared_ptr<Module> build(const Options& options, const Shape& input, int classes,
                              LayerContext& context) {
  check_model_input(kName, input, classes);
  const bool imagenet = options.text("stem") == "imagenet";
  LayerList net(kName);
  std::string x = net.conv("features.0.0", "input",
                           {.out_channels = kStages[0].channels,
                            .kernel = imagenet ? 4 : 3,
                            .stride = imagenet ? 4 : 1,
                            .bias = true,
                            .pads = !imagenet});
  x = norm(net, "features.0.1", x);
  int number = 1;
  double blocks = 0;
  for (const Stage& stage : kStages) {
    if (number > 1) {
      const std::string path = cat("features.", number++);
      x = net.conv(
          path + ".1", norm(net, path + ".0", x),
          {.out_channels = stage.channels, .kernel = 2, .stride = 2, .bias = true, .pads = false});
    }
    for (std::int64_t i = 0; i < stage.blocks; ++i) {
      x = block(net, cat("features.", number, ".", i), x, stage.channels,
                options.number("stochastic_depth") * blocks++ / (kBlocks - 1));
    }
    ++number;
  }
  x = net.add("global_avg_pool2d", "avgpool", {x});
  x = net.add("flatten", "classifier.1", {norm(net, "classifier.0", x)});
  net.add("linear", "classifier.2", {x}, {{"out_features", std::int64_t{classes}}});
  return net.build(input, context);
}

}  // namespace

CONVSCOPE_REGISTER_MODEL(
    "convnext_tiny", {.doc = "ConvNeXt-T: 7x7 depthwise convolutions, layer norm and GELU",
                      .fields = {stem_field("imagenet: 4x4 at stride 4; cifar: 3x3 at stride 1"),
                                 stochastic_depth_field(0.1)},
                      .build = build})

}  // namespace convscope
