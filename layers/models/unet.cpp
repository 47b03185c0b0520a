// SPDX-License-Identifier: Apache-2.0
// unet.cpp: U-Net: a class for each pixel. The image becomes smaller and then large again; on the
// way back, concat adds the larger images of the way down.
//
// Shapes      x [N,C,H,W] -> logits [N,classes,H,W];  H and W are multiples of 2^poolings
//             level i of the way down has width 2^i channels and H / 2^i x W / 2^i pixels
// Layers      each level: two 3x3 convolutions with batch norm and ReLU; 2x2 max pooling downwards,
//             2x2 transposed convolutions at stride 2 upwards
// Names       "down0.conv1.weight", "up0.conv1.weight", "up0.up.weight", "head.bias"
// Parameters  poolings  number of poolings, default 4;  width  channels of level 0, default 64
// Not here    the paper's convolutions without padding, which crop the images
// Usage       model: {type: unet, poolings: 3, width: 16}
// Paper       O. Ronneberger, P. Fischer, T. Brox: U-Net: Convolutional Networks for Biomedical
//             Image Segmentation, MICCAI 2015, arXiv 1505.04597
#include "layers/models/layer_list.h"

namespace convscope {
namespace {

constexpr const char* kName = "unet";

std::string two_convs(LayerList& net, const std::string& path, std::string x,
                      std::int64_t channels) {
  for (const int number : {1, 2}) {
    x = net.conv_norm(cat(path, ".conv", number), cat(path, ".bn", number), x,
                      {.out_channels = channels, .kernel = 3});
    x = net.add("relu", cat(path, ".relu", number), {x});
  }
  return x;
}

std::shared_ptr<Module> build(const Options& options, const Shape& input, int classes,
                              LayerContext& context) {
  check_model_input(kName, input, classes);
  const std::int64_t poolings = options.integer("poolings"), width = options.integer("width");
  for (const std::int64_t size : {input[2], input[3]}) {
    if (size % (std::int64_t{1} << poolings) == 0) continue;
    fail(ErrorKind::kConfig, kName,
         cat("expected images whose height and width are multiples of 2^poolings = ",
             std::int64_t{1} << poolings, ", got ", input,
             "; reduce model.poolings, or use images of another size"));
  }
  LayerList net(kName);
  std::vector<std::string> levels{two_convs(net, "down0", "input", width)};
  for (std::int64_t i = 1; i <= poolings; ++i) {
    const std::string pooled =
        net.add("max_pool2d", cat("pool", i), {levels.back()}, {{"kernel_size", std::int64_t{2}}});
    levels.push_back(two_convs(net, cat("down", i), pooled, width << i));
  }
  std::string x = levels.back();
  for (std::int64_t i = poolings - 1; i >= 0; --i) {
    const std::string path = cat("up", i);
    x = net.add("conv_transpose2d", path + ".up", {x},
                {{"out_channels", width << i},
                 {"kernel_size", std::int64_t{2}},
                 {"stride", std::int64_t{2}}});
    x = net.add("concat", path + ".concat", {levels.at(static_cast<std::size_t>(i)), x});
    x = two_convs(net, path, x, width << i);
  }
  net.conv("head", x, {.out_channels = classes, .bias = true});
  return net.build(input, context);
}

}  // namespace

CONVSCOPE_REGISTER_MODEL("unet",
                         {.doc = "U-Net: a class for each pixel, by poolings, transposed "
                                 "convolutions and concat",
                          .fields = {{.name = "poolings",
                                      .type = OptionType::integer,
                                      .default_value = std::int64_t{4},
                                      .doc = "number of poolings",
                                      .min = 1,
                                      .max = 10},
                                     {.name = "width",
                                      .type = OptionType::integer,
                                      .default_value = std::int64_t{64},
                                      .doc = "channels of the largest images; every pooling "
                                             "doubles them",
                                      .min = 1,
                                      .max = 1 << 14}},
                          .build = build})

}  // namespace convscope
