// SPDX-License-Identifier: Apache-2.0
// conv_layers.h: the convolutions of a network, of any kind (layers/dispatch/operator_use.h), and
// their problems, derived from shapes without running anything.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "layers/dispatch/operator_use.h"
#include "layers/module.h"

namespace convscope {

struct ConvLayer {
  std::string name;  // "c1"
  std::shared_ptr<const OperatorUse> use;
};

// Returns the layers in the order in which an image passes them; `input` is [N,C,H,W]. Fails when a
// module that contains convolutions does not tell which shapes reach them (Module::walk).
CONVSCOPE_API std::vector<ConvLayer> conv_layers(Module& network, const Shape& input);

}  // namespace convscope
