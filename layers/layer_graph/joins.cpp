// SPDX-License-Identifier: Apache-2.0
// joins.cpp: layers that make one result of several inputs: add, mul, concat.
#include "layers/layer_graph/joins.h"

#include "framework/ops/concat/concat.h"
#include "framework/ops/elementwise.h"
#include "layers/layer_types.h"

namespace convscope {
namespace {

using BinaryFunction = Variable (*)(const Variable&, const Variable&);

class Elementwise final : public Join {
 public:
  Elementwise(const char* kind, BinaryFunction function, std::size_t inputs)
      : Join(kind, inputs), function_(function) {}

  Variables forward(const Variables& inputs) override {
    Variable y = inputs[0];
    for (std::size_t i = 1; i < inputs.size(); ++i) y = function_(y, inputs[i]);
    return {y};
  }
  Shapes output_shapes(const Shapes& inputs) const override {
    Shape y = inputs[0];
    for (std::size_t i = 1; i < inputs.size(); ++i) {
      CONVSCOPE_CHECK(inputs[i].rank() == y.rank(), kind(),
                      "expected inputs with the same number of axes, got ", y, " and ", inputs[i]);
      y = broadcast_shape(y, inputs[i], kind().c_str());
    }
    return {y};
  }

 private:
  BinaryFunction function_;
};

template <BinaryFunction Function>
LayerType elementwise_type(const char* kind, const char* doc) {
  return {.doc = doc,
          .fields = {},
          .build = [kind](const Options&, const Shape&,
                          LayerContext& context) -> std::shared_ptr<Module> {
            return std::make_shared<Elementwise>(kind, Function, context.inputs.size());
          }};
}

}  // namespace

Join::Join(std::string kind, std::size_t inputs) : MultiModule(inputs), kind_(std::move(kind)) {
  CONVSCOPE_CHECK(inputs >= 2, kind_, "expected at least 2 inputs (from: [a, b]), got ", inputs);
}

// One operation of the autograd tape takes at most 6 inputs.
Variables Concat::forward(const Variables& inputs) {
  Variables part;
  for (const Variable& input : inputs) {
    part.push_back(input);
    if (part.size() == Node::kMaxInputs) part = {concat(part, axis_)};
  }
  return {part.size() == 1 ? part[0] : concat(part, axis_)};
}

Shapes Concat::output_shapes(const Shapes& inputs) const { return {concat_shape(inputs, axis_)}; }

CONVSCOPE_REGISTER_LAYER("add", elementwise_type<add>("add", "sum of its inputs"))
CONVSCOPE_REGISTER_LAYER("mul", elementwise_type<mul>("mul", "product of its inputs"))
CONVSCOPE_REGISTER_LAYER("concat",
                         {.doc = "its inputs one after the other, along one axis",
                          .fields = {{.name = "axis",
                                      .type = OptionType::integer,
                                      .default_value = std::int64_t{1},
                                      .doc = "the axis along which the inputs are joined; 1 = "
                                             "channels",
                                      .min = 1,
                                      .max = 3}},
                          .build = [](const Options& options, const Shape&,
                                      LayerContext& context) -> std::shared_ptr<Module> {
                            return std::make_shared<Concat>(
                                static_cast<int>(options.integer("axis")), context.inputs.size());
                          }})

}  // namespace convscope
