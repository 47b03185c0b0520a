// SPDX-License-Identifier: Apache-2.0
// conv_layers.h: the convolutions of a network, of whatever kind (layers/dispatch/heavy_use.h), and
// the problem that each of them gets, found from shapes alone: nothing is run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "layers/dispatch/heavy_use.h"
#include "layers/module.h"

namespace convscope {

struct ConvLayer {
  std::string name;  // "c1"
  std::shared_ptr<const HeavyUse> use;
};

// In the order in which an image passes them; `input` is [N,C,H,W]. An error when the network holds
// convolutions inside a module that hides what reaches them (Module::walk).
CONVSCOPE_API std::vector<ConvLayer> conv_layers(Module& network, const Shape& input);

}  // namespace convscope
