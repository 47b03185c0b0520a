// SPDX-License-Identifier: Apache-2.0
#include "experiments/config/conv_layers.h"

#include <map>

namespace convscope {
namespace {

// Inside a module that hides the way of the image, nobody knows the problems.
[[noreturn]] void refuse(const std::string& name, const Module& around) {
  fail(ErrorKind::kUnavailable, "explain",
       cat("expected convolutions inside Sequential and Residual only, because the shape that "
           "reaches them is followed from layer to layer, got '",
           name, "' inside a ", around.kind()));
}

}  // namespace

std::vector<ConvLayer> conv_layers(Module& network, const Shape& input) {
  std::map<const Module*, std::string> names;
  for (const NamedModule& part : network.modules()) names.emplace(part.module, part.name);
  std::vector<ConvLayer> out;
  network.walk(input, [&](Module& module, const Shape& shape) {
    if (const auto* conv = dynamic_cast<const Conv2d*>(&module)) {
      out.push_back({names.at(&module), conv, conv->problem(shape)});
      return;
    }
    for (const NamedModule& part : module.modules()) {
      if (dynamic_cast<const Conv2d*>(part.module) == nullptr) continue;
      refuse(part.name, module);
    }
  });
  return out;
}

}  // namespace convscope
