// SPDX-License-Identifier: Apache-2.0
// activation.cpp: elementwise activations; no parameters.
#include "layers/activation.h"

#include "framework/ops/bounded_relu/bounded_relu.h"
#include "framework/ops/elementwise.h"
#include "layers/layer_types.h"

namespace convscope {
namespace {

Variable (*function_of(const std::string& kind))(const Variable&) {
  if (kind == "relu") return relu;
  if (kind == "relu6") return relu6;
  if (kind == "tanh") return tanh;
  if (kind == "sigmoid") return sigmoid;
  fail("activation", cat("expected relu, relu6, tanh or sigmoid, got '", kind, "'"));
}

LayerType type_of(const char* kind, const char* doc) {
  return {.doc = doc,
          .fields = {},
          .build = [kind](const Options&, const Shape&, LayerContext&) -> std::shared_ptr<Module> {
            return std::make_shared<Activation>(kind);
          },
          .takes_rows = true};
}

}  // namespace

Activation::Activation(const std::string& kind) : kind_(kind), function_(function_of(kind)) {}

CONVSCOPE_REGISTER_LAYER("relu", type_of("relu", "max(x, 0)"))
CONVSCOPE_REGISTER_LAYER("relu6", type_of("relu6", "min(max(x, 0), 6)"))
CONVSCOPE_REGISTER_LAYER("tanh", type_of("tanh", "tanh(x)"))
CONVSCOPE_REGISTER_LAYER("sigmoid", type_of("sigmoid", "1 / (1 + exp(-x))"))

}  // namespace convscope
