// SPDX-License-Identifier: Apache-2.0
// config_test_types.h: a layer and a model with one key of each type, so that the tests of the
// config loader do not depend on the keys of real layers.
#pragma once

#include "layers/layer_types.h"
#include "layers/sequential.h"

namespace convscope::testing {

// A layer with two parameters, `weight` and `bias`. Its constructor requests a convolution policy,
// and its output shape is always [1,10].
class NamedLayer final : public Module {
 public:
  explicit NamedLayer(LayerContext& context) {
    add_parameter("weight", Tensor::zeros({2}));
    add_parameter("bias", Tensor::zeros({2}));
    if (context.conv_policy) policy = context.conv_policy(context.layer_name);
  }
  std::string kind() const override { return "test_layer"; }
  Variable forward(const Variable& x) override { return x; }
  Shape output_shape(const Shape&) const override { return {1, 10}; }
  Conv2dPolicy policy;
};

inline std::vector<OptionField> fields_of_each_type() {
  return {
      {.name = "size",
       .type = OptionType::integer,
       .doc = "an integer",
       .required = true,
       .min = 1},
      {.name = "padding", .type = OptionType::integers, .default_value = std::int64_t{0}, .min = 0},
      {.name = "rate", .type = OptionType::number, .default_value = std::int64_t{1}},
      {.name = "bias", .type = OptionType::boolean, .default_value = true},
      {.name = "mode",
       .type = OptionType::text,
       .default_value = std::string("zeros"),
       .choices = {"zeros", "reflect"}},
      {.name = "label", .type = OptionType::text},
      {.name = "tags", .type = OptionType::texts},
  };
}

inline const bool registered_test_layer = layer_types().add(
    "test_layer",
    {.doc = "for tests",
     .fields = fields_of_each_type(),
     .build = [](const Options&, const Shape&, LayerContext& context) -> std::shared_ptr<Module> {
       return std::make_shared<NamedLayer>(context);
     }},
    __FILE__);

inline const bool registered_test_model =
    model_types().add("test_model",
                      {.doc = "for tests",
                       .fields = fields_of_each_type(),
                       .build = [](const Options&, const Shape&, int,
                                   LayerContext& context) -> std::shared_ptr<Module> {
                         auto network = std::make_shared<Sequential>("test_model");
                         for (const char* name : {"c1", "c2"}) {
                           context.layer_name = name;
                           network->add(name, std::make_shared<NamedLayer>(context));
                         }
                         return network;
                       }},
                      __FILE__);

}  // namespace convscope::testing
