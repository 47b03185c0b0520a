// SPDX-License-Identifier: Apache-2.0
// efficientnet_b0.cpp: EfficientNet-B0: inverted residuals with squeeze-and-excitation and SiLU.
//
// Shapes      x [N,C,H,W] -> logits [N,classes];  224x224 images, stem imagenet:
//             features.0 [N,32,112,112]  features.2 [N,24,56,56]  features.3 [N,40,28,28]
//             features.5 [N,112,14,14]  features.7 [N,320,7,7]  features.8 [N,1280,7,7]
// Layers      a block: 1x1 to more channels, depthwise, squeeze-and-excitation, 1x1 to fewer
//             channels; each convolution has a batch norm, the first two also SiLU. If the shape
//             stays the same, x is added. In training, a block is skipped for some images
// Names       of parameters and buffers are those of torchvision: "features.2.0.block.2.fc1.weight"
// Parameters  stem              imagenet (default); cifar: features.0 and features.2 at stride 1
//             dropout           before the last layer, default 0.2
//             stochastic_depth  probability to skip the last block, default 0.2
// Usage       model: {type: efficientnet_b0, stem: cifar}
// Paper       M. Tan, Q. Le: EfficientNet: Rethinking Model Scaling for Convolutional Neural
//             Networks, ICML 2019, arXiv 1905.11946
#include "layers/models/layer_list.h"

namespace convscope {
namespace {

constexpr const char* kName = "efficientnet_b0";

// A row of table 1 of the paper: several equal blocks. The first one has the stride.
struct Stage {
  std::int64_t expansion, kernel, stride, channels, blocks;
};
constexpr Stage kStages[] = {{1, 3, 1, 16, 1}, {6, 3, 2, 24, 2},  {6, 5, 2, 40, 2},
                             {6, 3, 2, 80, 3}, {6, 5, 1, 112, 3}, {6, 5, 2, 192, 4},
                             {6, 3, 1, 320, 1}};
constexpr std::int64_t kBlocks = 16;

std::string conv_silu(LayerList& net, const std::string& path, const std::string& from,
                      const LayerList::Conv& sizes) {
  return net.add("silu", path + ".2", {net.conv_norm(path + ".0", path + ".1", from, sizes)});
}

struct Block {
  std::int64_t in_channels, out_channels, stride, kernel, expansion;
  double skip;  // probability
};

std::string inverted_residual(LayerList& net, const std::string& path, const std::string& x,
                              const Block& block) {
  const std::int64_t wide = block.in_channels * block.expansion;
  int next = 0;
  const auto part = [&] { return cat(path, ".block.", next++); };
  std::string y = x;
  if (block.expansion != 1) y = conv_silu(net, part(), y, {.out_channels = wide});
  y = conv_silu(
      net, part(), y,
      {.out_channels = wide, .kernel = block.kernel, .stride = block.stride, .groups = wide});
  y = net.add("squeeze_excitation", part(), {y},
              {{"reduction", 4 * block.expansion}, {"activation", std::string("silu")}});
  const std::string last = part();
  y = net.conv_norm(last + ".0", last + ".1", y, {.out_channels = block.out_channels});
  if (block.stride != 1 || block.in_channels != block.out_channels) return y;
  if (block.skip > 0) {
    y = net.add("stochastic_depth", path + ".stochastic_depth", {y}, {{"probability", block.skip}});
  }
  return net.add("add", path + ".add", {y, x});
}

std::shared_ptr<Module> build(const Options& options, const Shape& input, int classes,
                              LayerContext& context) {
  check_model_input(kName, input, classes);
  const bool imagenet = options.text("stem") == "imagenet";
  LayerList net(kName);
  std::int64_t channels = 32, stage_number = 0, blocks = 0;
  std::string x = conv_silu(net, "features.0", "input",
                            {.out_channels = channels, .kernel = 3, .stride = imagenet ? 2 : 1});
  for (const Stage& stage : kStages) {
    ++stage_number;
    for (std::int64_t i = 0; i < stage.blocks; ++i) {
      const bool is_strided = i == 0 && (imagenet || stage_number != 2);
      x = inverted_residual(
          net, cat("features.", stage_number, ".", i), x,
          {.in_channels = channels,
           .out_channels = stage.channels,
           .stride = is_strided ? stage.stride : 1,
           .kernel = stage.kernel,
           .expansion = stage.expansion,
           .skip = options.number("stochastic_depth") * static_cast<double>(blocks++) / kBlocks});
      channels = stage.channels;
    }
  }
  x = conv_silu(net, "features.8", x, {.out_channels = 4 * channels});
  net.classifier("classifier.1", x, classes, options.number("dropout"));
  return net.build(input, context);
}

}  // namespace

CONVSCOPE_REGISTER_MODEL(
    "efficientnet_b0",
    {.doc = "EfficientNet-B0: inverted residuals with squeeze-and-excitation and SiLU",
     .fields = {stem_field("cifar: the first two strides are 1, for images of about 32x32"),
                dropout_field(0.2), stochastic_depth_field(0.2)},
     .build = build})

}  // namespace convscope
