// SPDX-License-Identifier: Apache-2.0
// concat.h: joins tensors along one axis.
//
//   y[.., first_i + j, ..] = x_i[.., j, ..],   first_i = the sum of the sizes before x_i
//   Backward: dx_i is the part of dy that x_i gave. f32 and f64. Nothing is saved.
// Usage   Variable y = concat({a, b});  // [N,C1,H,W] and [N,C2,H,W] -> [N,C1+C2,H,W]
#pragma once

#include <vector>

#include "framework/autograd/variable.h"
#include "framework/kernel_slot.h"

namespace convscope {

// Joins 1 to 6 tensors that differ in the size of `axis` only; a negative axis counts from the end.
CONVSCOPE_API Variable concat(const std::vector<Variable>& x, int axis = 1);
// Returns the shape of the result. Throws unless the shapes fit.
CONVSCOPE_API Shape concat_shape(const std::vector<Shape>& x, int axis);

// Rows of a matrix whose rows are further apart than they are long.
struct StridedRows {
  std::int64_t rows = 0, count = 0;               // elements of one row
  std::int64_t from_stride = 0, from_offset = 0;  // in elements
  std::int64_t to_stride = 0, to_offset = 0;
};
// Copies rows between two tensors of one type: f32 or f64.
extern CONVSCOPE_API KernelSlot<void(const Tensor& from, const StridedRows&, const Tensor& to)>
    copy_rows_kernel;

}  // namespace convscope
