// SPDX-License-Identifier: Apache-2.0
// resnet50.cpp: ResNet-50: sixteen bottleneck blocks in four stages. With `blocks`, also ResNet-101
// and ResNet-152.
//
// Shapes      x [N,C,H,W] -> logits [N,classes];  224x224 images, stem imagenet:
//             maxpool [N,64,56,56]  layer1 [N,256,56,56]  layer2 [N,512,28,28]
//             layer3 [N,1024,14,14]  layer4 [N,2048,7,7]
// Layers      a bottleneck: 1x1 to `width` channels, 3x3, 1x1 to 4 `width` channels, each with
//             batch norm; then x is added. The 3x3 convolution has the stride (version 1.5)
// Names       of parameters and buffers are those of torchvision: "layer2.0.downsample.1.bias"
// Parameters  stem    imagenet (default): conv1 7x7 at stride 2, then 3x3 max pooling at stride 2;
//                     cifar: conv1 3x3 at stride 1, no pooling, for images of about 32x32
//             blocks  in each stage, default [3, 4, 6, 3]; [3, 4, 23, 3] is ResNet-101
//             widths  of the four stages, default [64, 128, 256, 512]
// Usage       model: {type: resnet50, stem: cifar}
// Paper       K. He, X. Zhang, S. Ren, J. Sun: Deep Residual Learning for Image Recognition,
//             CVPR 2016, arXiv 1512.03385
#include "layers/models/layer_list.h"

namespace convscope {
namespace {

constexpr const char* kName = "resnet50";
constexpr std::int64_t kExpansion = 4;

std::string bottleneck(LayerList& net, const std::string& path, const std::string& x,
                       std::int64_t width, std::int64_t stride, bool projects) {
  const auto conv_norm = [&](int number, const std::string& from, const LayerList::Conv& sizes) {
    return net.conv_norm(cat(path, ".conv", number), cat(path, ".bn", number), from, sizes);
  };
  const auto relu = [&](int number, const std::string& from) {
    return net.add("relu", cat(path, ".relu", number), {from});
  };
  std::string y = relu(1, conv_norm(1, x, {.out_channels = width}));
  y = relu(2, conv_norm(2, y, {.out_channels = width, .kernel = 3, .stride = stride}));
  y = conv_norm(3, y, {.out_channels = kExpansion * width});
  std::string shortcut = x;
  if (projects) {
    shortcut = net.conv_norm(path + ".downsample.0", path + ".downsample.1", x,
                             {.out_channels = kExpansion * width, .stride = stride});
  }
  return relu(3, net.add("add", path + ".add", {y, shortcut}));
}

std::vector<OptionField> fields() {
  const auto four = [](const char* name, std::vector<std::int64_t> values, const char* doc) {
    return OptionField{.name = name,
                       .type = OptionType::integers,
                       .default_value = std::move(values),
                       .doc = doc,
                       .min = 1,
                       .max = 1 << 16};
  };
  return {
      stem_field("imagenet: 7x7 at stride 2 and pooling; cifar: 3x3 at stride 1"),
      four("blocks", {3, 4, 6, 3}, "number of blocks in each of the four stages"),
      four("widths", {64, 128, 256, 512}, "channels of the 3x3 convolutions of the four stages")};
}

std::shared_ptr<Module> build(const Options& options, const Shape& input, int classes,
                              LayerContext& context) {
  check_model_input(kName, input, classes);
  const std::vector<std::int64_t>&blocks = options.integers("blocks"),
        &widths = options.integers("widths");
  for (const char* const key : {"blocks", "widths"}) {
    if (options.integers(key).size() == 4) continue;
    fail(ErrorKind::kConfig, kName,
         cat(key, ": expected four numbers, one for each stage, got ", to_text(options.get(key))));
  }
  const bool imagenet = options.text("stem") == "imagenet";
  LayerList net(kName);
  std::string x = net.conv_norm(
      "conv1", "bn1", "input",
      {.out_channels = widths[0], .kernel = imagenet ? 7 : 3, .stride = imagenet ? 2 : 1});
  x = net.add("relu", "relu", {x});
  if (imagenet) {
    x = net.add("max_pool2d", "maxpool", {x},
                {{"kernel_size", std::int64_t{3}},
                 {"stride", std::int64_t{2}},
                 {"padding", std::int64_t{1}}});
  }
  for (std::size_t stage = 0; stage < 4; ++stage) {
    for (std::int64_t block = 0; block < blocks[stage]; ++block) {
      x = bottleneck(net, cat("layer", stage + 1, ".", block), x, widths[stage],
                     stage > 0 && block == 0 ? 2 : 1, block == 0);
    }
  }
  net.classifier("fc", x, classes);
  return net.build(input, context);
}

}  // namespace

CONVSCOPE_REGISTER_MODEL("resnet50",
                         {.doc = "ResNet-50: sixteen bottleneck blocks; `blocks` makes it deeper",
                          .fields = fields(),
                          .build = build})

}  // namespace convscope
