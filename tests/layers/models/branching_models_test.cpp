// SPDX-License-Identifier: Apache-2.0
// branching_models_test.cpp: tests the models with branches: names and numbers of parameters,
// shapes, errors. experiments/baselines/model_vs_pytorch.py compares their values and gradients.
#include <gtest/gtest.h>

#include "framework/memory/unbacked.h"
#include "layers/layer_types.h"
#include "tests/layers/layer_cases.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using testing::error_of;
using testing::options;

std::shared_ptr<Module> network(const std::string& name, const Options& given, const Shape& input,
                                int classes = 10) {
  const UnbackedMemory nothing;  // no test reads a weight, and drawing 120 million takes seconds
  LayerContext context;
  const ModelType& type = model_types().get(name);
  return type.build(complete_options(type.fields, given, name), input, classes, context);
}

// Returns the shape of a parameter, or [] if there is none of this name.
Shape shape_of(const Module& network, const std::string& name) {
  for (const NamedParameter& p : network.parameters()) {
    if (p.name == name) return p.variable.shape();
  }
  return {};
}

// The numbers are those of torchvision.
TEST(BranchingModels, HaveTheParametersOfTorchvision) {
  const Shape image{1, 3, 224, 224};
  const auto count = [&](const char* name, const Options& given = {}) {
    return network(name, given, image, 1000)->parameter_count();
  };
  EXPECT_EQ(count("resnet50"), 25557032);
  EXPECT_EQ(count("resnet50", options({{"blocks", std::vector<std::int64_t>{3, 4, 23, 3}}})),
            44549160);  // ResNet-101
  EXPECT_EQ(count("googlenet", options({{"wide_kernel", std::int64_t{3}}})), 6624904);
  EXPECT_EQ(count("densenet121"), 7978856);
  EXPECT_EQ(count("efficientnet_b0"), 5288548);
  EXPECT_EQ(count("convnext_tiny"), 28589128);
}

TEST(BranchingModels, HaveTheNamesOfTorchvision) {
  const Shape image{1, 3, 64, 64};
  EXPECT_EQ(shape_of(*network("resnet50", {}, image), "layer2.0.downsample.0.weight"),
            (Shape{512, 256, 1, 1}));
  EXPECT_EQ(shape_of(*network("googlenet", {}, image), "inception4a.branch3.1.conv.weight"),
            (Shape{48, 16, 5, 5}));
  EXPECT_EQ(shape_of(*network("densenet121", {}, image),
                     "features.denseblock4.denselayer16.conv2.weight"),
            (Shape{32, 128, 3, 3}));
  EXPECT_EQ(shape_of(*network("efficientnet_b0", {}, image), "features.2.0.block.2.fc1.weight"),
            (Shape{4, 96, 1, 1}));
  EXPECT_EQ(shape_of(*network("convnext_tiny", {}, image), "features.7.2.block.0.weight"),
            (Shape{768, 1, 7, 7}));
}

TEST(BranchingModels, UNetGivesAClassForEachPixel) {
  const auto unet =
      network("unet", options({{"poolings", std::int64_t{2}}, {"width", std::int64_t{4}}}),
              {1, 3, 16, 24}, 5);
  EXPECT_EQ(unet->output_shape({2, 3, 16, 24}), (Shape{2, 5, 16, 24}));
  EXPECT_EQ(shape_of(*unet, "up1.up.weight"), (Shape{16, 8, 2, 2}));
  EXPECT_EQ(shape_of(*unet, "up1.conv1.weight"), (Shape{8, 16, 3, 3}));
}

TEST(BranchingModels, RefuseWhatDoesNotFit) {
  EXPECT_EQ(error_of([] {
              network("unet", {}, {1, 3, 24, 32});
            }),
            "[unet] expected images whose height and width are multiples of 2^poolings = 16, got "
            "[1,3,24,32]; reduce model.poolings, or use images of another size");
  EXPECT_EQ(
      error_of([] {
        network("resnet50", options({{"widths", std::vector<std::int64_t>{8, 8}}}), {1, 3, 32, 32});
      }),
      "[resnet50] widths: expected four numbers, one for each stage, got [8, 8]");
  EXPECT_EQ(error_of([] {
              network("densenet121", {}, {1, 784});
            }),
            "[densenet121] expected images [N,C,H,W], got [1,784]");
}

}  // namespace
}  // namespace convscope
