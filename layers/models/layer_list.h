// SPDX-License-Identifier: Apache-2.0
// layer_list.h: writes the list of layers of a model, as a config's `layers:` would. Every function
// appends layers and returns the name of the last one, which is the `from` of later layers.
//
//   LayerList net("tiny");
//   const std::string c = net.conv_norm("conv1", "bn1", "input", {.out_channels = 16});
//   const std::string a = net.add("relu", "relu", {c});
//   net.add("add", "sum", {a, c});
//   return net.build(input, context);
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "layers/layer_types.h"

namespace convscope {

class LayerList {
 public:
  using Values = std::vector<std::pair<std::string, OptionValue>>;
  struct Conv {
    std::int64_t out_channels, kernel = 1, stride = 1, groups = 1;
    bool bias = false;
    bool pads = true;  // kernel / 2 pixels on each side
  };

  explicit LayerList(std::string kind) : kind_(std::move(kind)) {}

  std::string add(const std::string& type, const std::string& name,
                  const std::vector<std::string>& from, const Values& options = {});
  // Appends a convolution whose weights are drawn for ReLU.
  std::string conv(const std::string& name, const std::string& from, const Conv& sizes);
  // Appends a convolution and its batch norm.
  std::string conv_norm(const std::string& conv_name, const std::string& norm_name,
                        const std::string& from, const Conv& sizes, double eps = 1e-5);
  // Appends the mean over the pixels, dropout if its probability is above 0, then a linear layer.
  void classifier(const std::string& linear_name, const std::string& from, int classes,
                  double dropout = 0);

  std::shared_ptr<Module> build(const Shape& input, LayerContext& context) const;

 private:
  std::string kind_;
  std::vector<LayerSpec> layers_;
};

// Fails unless the images are [N,C,H,W] and there is at least one class.
void check_model_input(const char* model, const Shape& input, int classes);

// Returns the option `stem`: imagenet for large images, cifar for images of about 32x32.
OptionField stem_field(const std::string& doc);
OptionField dropout_field(double default_value);
OptionField stochastic_depth_field(double default_value);

}  // namespace convscope
