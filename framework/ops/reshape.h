// SPDX-License-Identifier: Apache-2.0
// reshape.h: the same elements in another shape, without a copy.
#pragma once

#include "framework/autograd/variable.h"

namespace convscope {

CONVSCOPE_API Variable reshape(const Variable& x, const Shape& shape);

}  // namespace convscope
