// SPDX-License-Identifier: Apache-2.0
#include "experiments/config/conv_layers.h"

#include <map>

#include "layers/sequential.h"

namespace convscope {
namespace {

using Names = std::map<const Module*, std::string>;

void walk(Module& module, const Shape& input, const Names& names, std::vector<ConvLayer>& out) {
  if (const auto* conv = dynamic_cast<const Conv2d*>(&module)) {
    out.push_back({names.at(&module), conv, conv->problem(input)});
    return;
  }
  if (auto* sequence = dynamic_cast<Sequential*>(&module)) {
    Shape shape = input;
    for (std::size_t i = 0; i < sequence->size(); ++i) {
      walk(sequence->layer(i), shape, names, out);
      shape = sequence->layer(i).output_shape(shape);
    }
    return;
  }
  for (const NamedModule& part : module.modules()) {
    if (dynamic_cast<const Conv2d*>(part.module) == nullptr) continue;
    fail(ErrorKind::kUnavailable, "explain",
         cat("expected convolutions inside Sequential only, because the shape that reaches them is "
             "followed from layer to layer, got '",
             part.name, "' inside a ", module.kind()));
  }
}

}  // namespace

std::vector<ConvLayer> conv_layers(Module& network, const Shape& input) {
  Names names;
  for (const NamedModule& part : network.modules()) names.emplace(part.module, part.name);
  std::vector<ConvLayer> out;
  walk(network, input, names, out);
  return out;
}

}  // namespace convscope
