// SPDX-License-Identifier: Apache-2.0
// densenet121.cpp: DenseNet-121: every layer of a block reads the results of all layers before it.
//
// Shapes      x [N,C,H,W] -> logits [N,classes];  224x224 images, stem imagenet:
//             pool0 [N,64,56,56]  denseblock1 [N,256,56,56]  denseblock2 [N,512,28,28]
//             denseblock3 [N,1024,14,14]  denseblock4 [N,1024,7,7]
// Layers      a dense layer: batch norm, ReLU, 1x1 to 4 `growth` channels, batch norm, ReLU, 3x3 to
//             `growth` channels; concat appends them to x. A transition: batch norm, ReLU, 1x1 to
//             half of the channels, 2x2 average pooling
// Names       of parameters and buffers are those of torchvision:
//             "features.denseblock1.denselayer2.norm1.weight"
// Parameters  stem    imagenet (default): 7x7 at stride 2 and pooling; cifar: 3x3 at stride 1
//             growth  channels that a layer adds, default 32; the stem has twice as many
//             blocks  layers of each block, default [6, 12, 24, 16]
// Usage       model: {type: densenet121, stem: cifar, growth: 12}
// Paper       G. Huang, Z. Liu, L. van der Maaten, K. Weinberger: Densely Connected Convolutional
//             Networks, CVPR 2017, arXiv 1608.06993
#include "layers/models/layer_list.h"

namespace convscope {
namespace {

constexpr const char* kName = "densenet121";

std::string norm_relu(LayerList& net, const std::string& path, const std::string& number,
                      const std::string& from) {
  const std::string norm = net.add("batch_norm2d", cat(path, "norm", number), {from});
  return net.add("relu", cat(path, "relu", number), {norm});
}

std::string dense_layer(LayerList& net, const std::string& path, const std::string& x,
                        std::int64_t growth) {
  std::string y = norm_relu(net, path, "1", x);
  y = net.conv(path + "conv1", y, {.out_channels = 4 * growth});
  y = norm_relu(net, path, "2", y);
  y = net.conv(path + "conv2", y, {.out_channels = growth, .kernel = 3});
  return net.add("concat", path + "concat", {x, y});
}

std::string transition(LayerList& net, const std::string& path, const std::string& x,
                       std::int64_t channels) {
  const std::string y =
      net.conv(path + "conv", norm_relu(net, path, "", x), {.out_channels = channels});
  return net.add("avg_pool2d", path + "pool", {y}, {{"kernel_size", std::int64_t{2}}});
}

std::shared_ptr<Module> build(const Options& options, const Shape& input, int classes,
                              LayerContext& context) {
  check_model_input(kName, input, classes);
  const bool imagenet = options.text("stem") == "imagenet";
  const std::int64_t growth = options.integer("growth");
  const std::vector<std::int64_t>& blocks = options.integers("blocks");
  std::int64_t channels = 2 * growth;
  LayerList net(kName);
  std::string x =
      net.conv("features.conv0", "input",
               {.out_channels = channels, .kernel = imagenet ? 7 : 3, .stride = imagenet ? 2 : 1});
  x = norm_relu(net, "features.", "0", x);
  if (imagenet) {
    x = net.add("max_pool2d", "features.pool0", {x},
                {{"kernel_size", std::int64_t{3}},
                 {"stride", std::int64_t{2}},
                 {"padding", std::int64_t{1}}});
  }
  for (std::size_t block = 0; block < blocks.size(); ++block) {
    for (std::int64_t layer = 1; layer <= blocks[block]; ++layer) {
      x = dense_layer(net, cat("features.denseblock", block + 1, ".denselayer", layer, "."), x,
                      growth);
    }
    channels += blocks[block] * growth;
    if (block + 1 == blocks.size()) break;
    channels /= 2;
    x = transition(net, cat("features.transition", block + 1, "."), x, channels);
  }
  net.classifier("classifier", norm_relu(net, "features.", "5", x), classes);
  return net.build(input, context);
}

}  // namespace

CONVSCOPE_REGISTER_MODEL(
    "densenet121",
    {.doc = "DenseNet-121: each layer reads the results of all layers of its block",
     .fields = {stem_field("imagenet: 7x7 at stride 2 and pooling; cifar: 3x3 at stride 1"),
                {.name = "growth",
                 .type = OptionType::integer,
                 .default_value = std::int64_t{32},
                 .doc = "channels that each layer adds",
                 .min = 1,
                 .max = 1 << 12},
                {.name = "blocks",
                 .type = OptionType::integers,
                 .default_value = std::vector<std::int64_t>{6, 12, 24, 16},
                 .doc = "number of layers of each block",
                 .min = 1,
                 .max = 1000}},
     .build = build})

}  // namespace convscope
