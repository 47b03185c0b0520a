// SPDX-License-Identifier: Apache-2.0
// resnet18.cpp: the smallest network of He et al. (2016): eight residual blocks in four stages.
//
// Shapes      x [N,C,H,W] -> logits [N,classes];  224x224 images, stem imagenet:
//             conv1 [N,64,112,112]  maxpool [N,64,56,56]  layer1 [N,64,56,56]
//             layer2 [N,128,28,28]  layer3 [N,256,14,14]  layer4 [N,512,7,7]  avgpool [N,512,1,1]
// Layers      conv1 bn1 relu [maxpool] layer1 layer2 layer3 layer4 avgpool flatten fc; each stage
//             is two blocks (residual.h); from layer2 on the first one halves the image size
// Names       of parameters and buffers are those of torchvision: "layer2.0.downsample.1.bias";
//             torchvision's num_batches_tracked has no counterpart
// Parameters  stem    imagenet (default): conv1 7x7 at stride 2, then 3x3 max pooling at stride 2;
//                     cifar: conv1 3x3 at stride 1, no pooling, for images of about 32x32
//             widths  channels of the four stages; default [64, 128, 256, 512]
//             Weights of convolutions are normal with deviation sqrt(2/fan_in).
// Usage       model: {type: resnet18, stem: cifar}
// Paper       K. He, X. Zhang, S. Ren, J. Sun: Deep Residual Learning for Image Recognition,
//             CVPR 2016, arXiv 1512.03385
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

constexpr const char* kName = "resnet18";

std::vector<OptionField> fields() {
  return {stem_field("imagenet: 7x7 at stride 2 and pooling; cifar: 3x3 at stride 1"),
          {.name = "widths",
           .type = OptionType::integers,
           .default_value = std::vector<std::int64_t>{64, 128, 256, 512},
           .doc = "channels of the four stages",
           .min = 1,
           .max = 1 << 16}};
}

std::shared_ptr<Module> build(const Options& options, const Shape& input, int classes,
                              LayerContext& context) {
  check_model_input(kName, input, classes);
  const std::vector<std::int64_t>& widths = options.integers("widths");
  if (widths.size() != 4) {
    fail(ErrorKind::kConfig, kName,
         cat("expected four widths, one for each stage, got ", to_text(options.get("widths"))));
  }
  const bool imagenet = options.text("stem") == "imagenet";
  const auto network = std::make_shared<Sequential>(kName);
  network->add("conv1", plain_conv({.in_channels = input[1],
                                    .out_channels = widths[0],
                                    .kernel = imagenet ? 7 : 3,
                                    .stride = imagenet ? 2 : 1},
                                   "conv1", context));
  network->add("bn1", std::make_shared<BatchNorm2d>(widths[0], BatchNormOptions{}, context));
  network->add("relu", std::make_shared<Activation>("relu"));
  if (imagenet) {
    network->add("maxpool", std::make_shared<Pool2d>(PoolKind::max, Pool2dWindow{.kernel_h = 3,
                                                                                 .kernel_w = 3,
                                                                                 .stride_h = 2,
                                                                                 .stride_w = 2,
                                                                                 .pad_h = 1,
                                                                                 .pad_w = 1}));
  }
  std::int64_t channels = widths[0];
  for (std::size_t i = 0; i < widths.size(); ++i) {
    const std::string stage_name = cat("layer", i + 1);
    const auto stage = std::make_shared<Sequential>();
    stage->add("0", basic_block(channels, widths[i], i == 0 ? 1 : 2, stage_name + ".0", context));
    stage->add("1", basic_block(widths[i], widths[i], 1, stage_name + ".1", context));
    network->add(stage_name, stage);
    channels = widths[i];
  }
  network->add("avgpool", std::make_shared<AdaptiveAvgPool2d>(1, 1));
  network->add("flatten", std::make_shared<Flatten>());
  network->add("fc", std::make_shared<Linear>(
                         LinearOptions{.in_features = channels, .out_features = classes}, context));
  return network;
}

}  // namespace

CONVSCOPE_REGISTER_MODEL("resnet18",
                         {.doc = "ResNet-18: eight blocks of two 3x3 convolutions with shortcuts",
                          .fields = fields(),
                          .build = build})

}  // namespace convscope
