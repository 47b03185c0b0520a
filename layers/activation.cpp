// SPDX-License-Identifier: Apache-2.0
#include "layers/activation.h"

#include "framework/ops/elementwise.h"
#include "layers/layer_types.h"

namespace convscope {
namespace {

Variable (*function_of(const std::string& kind))(const Variable&) {
  if (kind == "relu") return relu;
  if (kind == "tanh") return tanh;
  if (kind == "sigmoid") return sigmoid;
  fail("activation", cat("expected relu, tanh or sigmoid, got '", kind, "'"));
}

LayerType type_of(const char* kind, const char* doc) {
  return {.doc = doc,
          .fields = {},
          .build = [kind](const Options&, const Shape&, LayerContext&) -> std::shared_ptr<Module> {
            return std::make_shared<Activation>(kind);
          }};
}

}  // namespace

Activation::Activation(const std::string& kind) : kind_(kind), function_(function_of(kind)) {}

CONVSCOPE_REGISTER_LAYER("relu", type_of("relu", "max(x, 0)"))
CONVSCOPE_REGISTER_LAYER("tanh", type_of("tanh", "tanh(x)"))
CONVSCOPE_REGISTER_LAYER("sigmoid", type_of("sigmoid", "1 / (1 + exp(-x))"))

}  // namespace convscope
