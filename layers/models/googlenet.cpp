// SPDX-License-Identifier: Apache-2.0
// googlenet.cpp: GoogLeNet (Inception v1): nine modules, each with four branches whose windows have
// different sizes.
//
// Shapes      x [N,C,H,W] -> logits [N,classes];  224x224 images, stem imagenet:
//             maxpool2 [N,192,28,28]  inception3b [N,480,28,28]  inception4e [N,832,14,14]
//             inception5b [N,1024,7,7]
// Layers      a module: 1x1 | 1x1, 3x3 | 1x1, 5x5 | 3x3 max pooling, 1x1, joined by concat
// Names       of parameters and buffers are those of torchvision:
//             "inception3a.branch2.1.conv.weight"
// Parameters  stem         imagenet (default): 7x7 at stride 2 and pooling; cifar: 3x3 at stride 1,
//                          without the two poolings of the stem
//             wide_kernel  window of the third branch: 5 (default), as in the paper; 3 is what
//                          torchvision has
//             dropout      before the last layer, default 0.2
// Not here    the two auxiliary classifiers, and local response normalization: every convolution
//             has a batch norm (eps 0.001), as in torchvision
// Usage       model: {type: googlenet, stem: cifar}
// Paper       C. Szegedy et al.: Going Deeper with Convolutions, CVPR 2015, arXiv 1409.4842
#include "layers/models/layer_list.h"

namespace convscope {
namespace {

constexpr const char* kName = "googlenet";

// Channels of a row of table 1 of the paper: 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5, pool proj.
struct Inception {
  const char* name;
  std::int64_t one, reduce3, three, reduce5, five, pool;
  bool pools = false;  // a max pooling at stride 2 follows
};
constexpr Inception kModules[] = {
    {"3a", 64, 96, 128, 16, 32, 32},           {"3b", 128, 128, 192, 32, 96, 64, true},
    {"4a", 192, 96, 208, 16, 48, 64},          {"4b", 160, 112, 224, 24, 64, 64},
    {"4c", 128, 128, 256, 24, 64, 64},         {"4d", 112, 144, 288, 32, 64, 64},
    {"4e", 256, 160, 320, 32, 128, 128, true}, {"5a", 256, 160, 320, 32, 128, 128},
    {"5b", 384, 192, 384, 48, 128, 128}};

std::string conv(LayerList& net, const std::string& path, const std::string& from,
                 const LayerList::Conv& sizes) {
  const std::string y = net.conv_norm(path + ".conv", path + ".bn", from, sizes, 1e-3);
  return net.add("relu", path + ".relu", {y});
}

// Rounds the number of windows up, as the paper does.
std::string pool(LayerList& net, const std::string& name, const std::string& from,
                 std::int64_t kernel, std::int64_t stride) {
  return net.add("max_pool2d", name, {from},
                 {{"kernel_size", kernel},
                  {"stride", stride},
                  {"padding", stride == 1 ? kernel / 2 : std::int64_t{0}},
                  {"ceil_mode", true}});
}

std::string inception(LayerList& net, const Inception& sizes, std::int64_t wide_kernel,
                      const std::string& x) {
  const std::string path = cat("inception", sizes.name);
  const std::string one = conv(net, path + ".branch1", x, {.out_channels = sizes.one});
  std::string three = conv(net, path + ".branch2.0", x, {.out_channels = sizes.reduce3});
  three = conv(net, path + ".branch2.1", three, {.out_channels = sizes.three, .kernel = 3});
  std::string five = conv(net, path + ".branch3.0", x, {.out_channels = sizes.reduce5});
  five = conv(net, path + ".branch3.1", five, {.out_channels = sizes.five, .kernel = wide_kernel});
  const std::string pooled = conv(net, path + ".branch4.1", pool(net, path + ".branch4.0", x, 3, 1),
                                  {.out_channels = sizes.pool});
  return net.add("concat", path + ".concat", {one, three, five, pooled});
}

std::shared_ptr<Module> build(const Options& options, const Shape& input, int classes,
                              LayerContext& context) {
  check_model_input(kName, input, classes);
  const std::int64_t wide_kernel = options.integer("wide_kernel");
  CONVSCOPE_CHECK(wide_kernel % 2 == 1, kName, "expected an odd wide_kernel, got ", wide_kernel);
  const bool imagenet = options.text("stem") == "imagenet";
  LayerList net(kName);
  std::string x =
      conv(net, "conv1", "input",
           {.out_channels = 64, .kernel = imagenet ? 7 : 3, .stride = imagenet ? 2 : 1});
  if (imagenet) x = pool(net, "maxpool1", x, 3, 2);
  x = conv(net, "conv2", x, {.out_channels = 64});
  x = conv(net, "conv3", x, {.out_channels = 192, .kernel = 3});
  if (imagenet) x = pool(net, "maxpool2", x, 3, 2);
  int pools = 2;
  for (const Inception& sizes : kModules) {
    x = inception(net, sizes, wide_kernel, x);
    if (!sizes.pools) continue;
    ++pools;
    x = pool(net, cat("maxpool", pools), x, pools == 3 ? 3 : 2, 2);  // as in torchvision
  }
  net.classifier("fc", x, classes, options.number("dropout"));
  return net.build(input, context);
}

}  // namespace

CONVSCOPE_REGISTER_MODEL(
    "googlenet",
    {.doc = "GoogLeNet (Inception v1) with batch norm: nine modules of four branches",
     .fields = {stem_field("imagenet: 7x7 at stride 2 and pooling; cifar: 3x3 at stride 1"),
                {.name = "wide_kernel",
                 .type = OptionType::integer,
                 .default_value = std::int64_t{5},
                 .doc = "window of the third branch, pixels; 3 is what torchvision has",
                 .min = 1,
                 .max = 15},
                dropout_field(0.2)},
     .build = build})

}  // namespace convscope
