// SPDX-License-Identifier: Apache-2.0
// reshape.cpp: the same elements in another shape, without a copy.
#include "framework/ops/reshape.h"

namespace convscope {

Variable reshape(const Variable& x, const Shape& shape) {
  return record("reshape", x.value().reshape(shape), {x},
                [before = x.shape()](const Tensor& dy, GradientSink& out) {
                  out.add(0, dy.reshape(before));
                });
}

}  // namespace convscope
