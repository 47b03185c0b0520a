// SPDX-License-Identifier: Apache-2.0
// linear.cpp: every output is a weighted sum of all inputs.
#include "layers/linear/linear.h"

#include "layers/init.h"

namespace convscope {

Linear::Linear(const LinearOptions& options, LayerContext& context)
    : options_(options), precision_(context.precision) {
  CONVSCOPE_CHECK(options.in_features >= 1 && options.out_features >= 1, "linear",
                  "expected at least one feature in and out, got ", options.in_features, " and ",
                  options.out_features);
  const Shape shape{options.out_features, options.in_features};
  weight_ =
      add_parameter("weight", initial_weight(options.init, shape, options.in_features, context));
  if (!options.bias) return;
  bias_ = add_parameter(
      "bias", initial_bias(options.init, {options.out_features}, options.in_features, context));
}

Variable Linear::forward(const Variable& x) {
  const Variable input = transformed_input(x);
  const Variable w = transformed_weight(weight_, x.graph());
  return linear(input, w, bias_, precision_);
}

Shape Linear::output_shape(const Shape& input) const {
  CONVSCOPE_CHECK(input.rank() == 2 && input[1] == options_.in_features, "linear", "expected x [N,",
                  options_.in_features, "], got ", input,
                  input.rank() > 2 ? "; a flatten layer before it makes it [N,I]" : "");
  return {input[0], options_.out_features};
}

CONVSCOPE_REGISTER_LAYER("linear",
                         {.doc = "fully connected layer: y = x W^T + b",
                          .fields = {{.name = "out_features",
                                      .type = OptionType::integer,
                                      .doc = "number of outputs",
                                      .required = true,
                                      .min = 1,
                                      .max = 1 << 24},
                                     {.name = "bias",
                                      .type = OptionType::boolean,
                                      .default_value = true,
                                      .doc = "add a bias"},
                                     init_field()},
                          .build = [](const Options& options, const Shape& input,
                                      LayerContext& context) -> std::shared_ptr<Module> {
                            CONVSCOPE_CHECK(input.rank() == 2, "linear", "expected x [N,I], got ",
                                            input, "; a flatten layer before it makes it [N,I]");
                            return std::make_shared<Linear>(
                                LinearOptions{.in_features = input[1],
                                              .out_features = options.integer("out_features"),
                                              .bias = options.flag("bias"),
                                              .init = options.text("init")},
                                context);
                          }})

}  // namespace convscope
