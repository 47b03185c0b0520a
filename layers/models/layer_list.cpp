// SPDX-License-Identifier: Apache-2.0
// layer_list.cpp: writes the list of layers of a model.
#include "layers/models/layer_list.h"

namespace convscope {

std::string LayerList::add(const std::string& type, const std::string& name,
                           const std::vector<std::string>& from, const Values& options) {
  LayerSpec spec{.type = type, .name = name, .options = {}, .from = from};
  for (const auto& [key, value] : options) spec.options.set(key, value);
  layers_.push_back(std::move(spec));
  return name;
}

std::string LayerList::conv(const std::string& name, const std::string& from, const Conv& sizes) {
  return add("conv2d", name, {from},
             {{"out_channels", sizes.out_channels},
              {"kernel_size", sizes.kernel},
              {"stride", sizes.stride},
              {"padding", sizes.pads ? sizes.kernel / 2 : std::int64_t{0}},
              {"groups", sizes.groups},
              {"bias", sizes.bias},
              {"init", std::string("kaiming_normal")}});
}

std::string LayerList::conv_norm(const std::string& conv_name, const std::string& norm_name,
                                 const std::string& from, const Conv& sizes, double eps) {
  return add("batch_norm2d", norm_name, {conv(conv_name, from, sizes)}, {{"eps", eps}});
}

void LayerList::classifier(const std::string& linear_name, const std::string& from, int classes,
                           double dropout) {
  std::string x = add("global_avg_pool2d", "avgpool", {from});
  x = add("flatten", "flatten", {x});
  if (dropout > 0) x = add("dropout", "dropout", {x}, {{"p", dropout}});
  add("linear", linear_name, {x}, {{"out_features", std::int64_t{classes}}});
}

std::shared_ptr<Module> LayerList::build(const Shape& input, LayerContext& context) const {
  return build_layers(layers_, input, context, kind_);
}

void check_model_input(const char* model, const Shape& input, int classes) {
  CONVSCOPE_CHECK(classes >= 1, model, "expected at least one class, got ", classes);
  CONVSCOPE_CHECK(input.rank() == 4 && input[1] >= 1 && input[2] >= 1 && input[3] >= 1, model,
                  "expected images [N,C,H,W], got ", input);
}

OptionField stem_field(const std::string& doc) {
  return {.name = "stem",
          .type = OptionType::text,
          .default_value = std::string("imagenet"),
          .doc = doc,
          .choices = {"imagenet", "cifar"}};
}

OptionField dropout_field(double default_value) {
  return {.name = "dropout",
          .type = OptionType::number,
          .default_value = default_value,
          .doc = "dropout probability before the last layer",
          .min = 0,
          .max = 0.999999};
}

OptionField stochastic_depth_field(double default_value) {
  return {.name = "stochastic_depth",
          .type = OptionType::number,
          .default_value = default_value,
          .doc =
              "probability that the last block is skipped in training; it grows linearly from 0 "
              "with the depth",
          .min = 0,
          .max = 0.999999};
}

}  // namespace convscope
