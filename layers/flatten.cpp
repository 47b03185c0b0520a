// SPDX-License-Identifier: Apache-2.0
// flatten.cpp: merges all axes except the first into one; no elements are copied.
#include "layers/flatten.h"

#include "framework/ops/reshape.h"
#include "layers/layer_types.h"

namespace convscope {

Variable Flatten::forward(const Variable& x) { return reshape(x, output_shape(x.shape())); }

Shape Flatten::output_shape(const Shape& input) const {
  CONVSCOPE_CHECK(input.rank() >= 1, "flatten", "expected x with a batch axis, got ", input);
  std::int64_t features = 1;
  for (int axis = 1; axis < input.rank(); ++axis) features *= input[axis];
  return {input[0], features};
}

CONVSCOPE_REGISTER_LAYER("flatten",
                         {.doc = "merges all axes except the first: [N,C,H,W] -> [N, C H W]",
                          .fields = {},
                          .build = [](const Options&, const Shape&, LayerContext&)
                              -> std::shared_ptr<Module> { return std::make_shared<Flatten>(); }})

}  // namespace convscope
