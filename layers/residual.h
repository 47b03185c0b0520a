// SPDX-License-Identifier: Apache-2.0
// residual.h: a block that adds its input to the result of its body.
//
// Shapes      x [N,C,H,W] -> y [N,K,P,Q];  body(x) and shortcut(x) have the shape of y
// Formula     y = relu(body(x) + shortcut(x));  the shortcut is x itself when it has no layers.
//             Inverted residuals (models/mobilenet_v2.cpp) have no activation after the sum
// Parameters  of the layer `residual` in a config, the basic block of ResNet-18 and 34:
//             out_channels  K, required
//             stride        of the first convolution and of the shortcut, pixels, default 1
//             body = conv1 3x3, bn1, relu1, conv2 3x3, bn2. The shortcut is x itself. If the shape
//             changes, it is a 1x1 convolution and a batch norm (downsample.0, downsample.1)
// Transforms  Transforms of the input (Module::add_input_transform) run before the block divides:
//             body and shortcut read the transformed input. Transforms of the shortcut run after
//             its layers, before the sum (quant/quantize_network.h)
// Names       parts are children of the block itself, as in torchvision: "conv1.weight",
//             "bn1.running_mean", "downsample.0.weight"
// Usage       {type: residual, out_channels: 64, stride: 2}
// Paper       K. He, X. Zhang, S. Ren, J. Sun: Deep Residual Learning for Image Recognition,
//             CVPR 2016, arXiv 1512.03385
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "layers/layer_types.h"
#include "layers/sequential.h"

namespace convscope {

class CONVSCOPE_API Residual final : public Module {
 public:
  // `shortcut` is null if x itself is added. Layers of the body become children under their own
  // names, the shortcut becomes the child "downsample".
  enum class End { relu, sum };
  Residual(const std::vector<std::pair<std::string, std::shared_ptr<Module>>>& body,
           std::shared_ptr<Sequential> shortcut, End end = End::relu);

  Sequential& body() const { return *body_; }
  End end() const { return end_; }
  Sequential* shortcut() const { return shortcut_.get(); }  // null: x itself

  std::string kind() const override { return "residual"; }
  Variable forward(const Variable& x) override;
  Shape output_shape(const Shape& input) const override;
  void walk(const Shapes& inputs, const WalkVisitor& visit) override;

  // Adds a transform of the shortcut's result; only where the shortcut has layers.
  void add_shortcut_transform(const std::string& name, std::shared_ptr<Module> transform);

 private:
  std::shared_ptr<Sequential> body_;  // its layers are children of this module
  std::shared_ptr<Sequential> shortcut_;
  std::vector<std::shared_ptr<Module>> shortcut_transforms_;
  End end_;
};

// Returns a basic block, relu(body(x) + shortcut(x)). The body is first, norm, ReLU, second, norm.
// Each call of `norm` creates a new batch norm.
CONVSCOPE_API std::shared_ptr<Residual> basic_block_of(
    std::shared_ptr<Module> first, std::shared_ptr<Module> second,
    const std::function<std::shared_ptr<Module>()>& norm, std::shared_ptr<Sequential> shortcut);

// The sizes of plain_conv(), which makes a convolution without bias, with weights drawn for ReLU.
// Its `path` is the full name of the layer, as in the config's conv.per_layer: "layer1.0.conv1".
struct PlainConv {
  std::int64_t in_channels, out_channels, kernel = 3, stride = 1, groups = 1;
};
CONVSCOPE_API std::shared_ptr<Module> plain_conv(const PlainConv& sizes, const std::string& path,
                                                 LayerContext& context);

// Returns the basic block; `path` is the name of the block.
CONVSCOPE_API std::shared_ptr<Residual> basic_block(std::int64_t in_channels,
                                                    std::int64_t out_channels, std::int64_t stride,
                                                    const std::string& path, LayerContext& context);

}  // namespace convscope
