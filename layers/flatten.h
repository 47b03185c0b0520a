// SPDX-License-Identifier: Apache-2.0
// flatten.h: merges all axes except the first into one; no elements are copied.
//
// Shapes    x [N,C,H,W] -> y [N, C H W]
// Usage     Flatten flatten;  y = flatten.forward(x);
#pragma once

#include <string>

#include "layers/module.h"

namespace convscope {

class CONVSCOPE_API Flatten final : public Module {
 public:
  std::string kind() const override { return "flatten"; }
  Variable forward(const Variable& x) override;
  Shape output_shape(const Shape& input) const override;
};

}  // namespace convscope
