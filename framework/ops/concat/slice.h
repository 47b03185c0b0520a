// SPDX-License-Identifier: Apache-2.0
// slice.h: a part of a tensor along one axis; the inverse of concat.
//
//   y[.., j, ..] = x[.., first + j, ..],  j < count
//   Backward: dx is dy at these places, else 0. f32 and f64. Nothing is saved.
// Usage   Variable y = slice(x, 1, 0, 8);  // the first 8 channels
#pragma once

#include "framework/autograd/variable.h"

namespace convscope {

// Returns the part; a negative axis counts from the end.
CONVSCOPE_API Variable slice(const Variable& x, int axis, std::int64_t first, std::int64_t count);

}  // namespace convscope
