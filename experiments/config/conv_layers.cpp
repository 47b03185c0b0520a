// SPDX-License-Identifier: Apache-2.0
// conv_layers.cpp: the convolutions of a network and their problems, derived from shapes without
// running anything.
#include "experiments/config/conv_layers.h"

#include <map>
#include <utility>

namespace convscope {
namespace {

// Throws for a module that contains convolutions but hides which image shapes reach them, so that
// their problems are unknown.
[[noreturn]] void refuse(const std::string& name, const Module& around) {
  fail(ErrorKind::kUnavailable, "explain",
       cat("expected convolutions inside Sequential, LayerGraph and Residual only, because the "
           "shape that "
           "reaches them is followed from layer to layer, got '",
           name, "' inside a ", around.kind()));
}

// Returns whether the weights have more than two axes. Convolutions have more; linear layers have
// two (outputs and inputs).
bool slides(const Module& module) {
  return module.weight().defined() && module.weight().shape().rank() > 2;
}

}  // namespace

std::vector<ConvLayer> conv_layers(Module& network, const Shape& input) {
  std::map<const Module*, std::string> names;
  for (const NamedModule& part : network.modules()) names.emplace(part.module, part.name);
  std::vector<ConvLayer> out;
  network.walk({input}, [&](Module& module, const Shapes& inputs) {
    if (std::shared_ptr<const OperatorUse> use = module.operator_use(inputs[0])) {
      out.push_back({names.at(&module), std::move(use)});
      return;
    }
    for (const NamedModule& part : module.modules()) {
      if (slides(*part.module)) refuse(part.name, module);
    }
  });
  return out;
}

}  // namespace convscope
