// SPDX-License-Identifier: Apache-2.0
// reduce.h: sums, means and maxima over axes. Element types f32 and f64.
#pragma once

#include <initializer_list>

#include "framework/autograd/variable.h"
#include "framework/kernel_slot.h"

namespace convscope {

// A set of axes; negative axes count from the end. In the functions below, {} means all axes.
class CONVSCOPE_API Axes {
 public:
  Axes() = default;
  Axes(std::initializer_list<int> axes);
  bool all() const { return count_ == 0; }
  // Returns one flag per axis of `shape`, bit i = axis i. Throws an error of `operation` for an
  // axis that does not exist or is listed twice.
  unsigned mask(const Shape& shape, const char* operation) const;

 private:
  int axes_[Shape::kMaxRank] = {};
  int count_ = 0;
};

// Returns sums (and means) over axes. With keepdim, the summed axes remain, with size 1.
CONVSCOPE_API Variable sum(const Variable& x, const Axes& axes = {}, bool keepdim = false);
CONVSCOPE_API Variable mean(const Variable& x, const Axes& axes = {}, bool keepdim = false);
// Returns the maxima over axes. Each of these axes has a size of at least 1. NaN counts as the
// largest value. The gradient of a maximum goes to the first equal element in memory.
CONVSCOPE_API Variable max(const Variable& x, const Axes& axes = {}, bool keepdim = false);

// Does the same without a history.
CONVSCOPE_API Tensor sum(const Tensor& x, const Axes& axes = {}, bool keepdim = false);

// Overwrites y with the sums of x over the axes whose bit is set in `mask`. y has as many elements
// as the remaining axes.
extern CONVSCOPE_API KernelSlot<void(const Tensor& x, unsigned mask, const Tensor& y)> sum_kernel;
// Overwrites y with the maxima. `places` (i32, size of y) gets the index in x of each maximum.
extern CONVSCOPE_API
    KernelSlot<void(const Tensor& x, unsigned mask, const Tensor& y, const Tensor& places)>
        max_kernel;
// Computes dx = 0, then dx[places[i]] = dy[i].
extern CONVSCOPE_API KernelSlot<void(const Tensor& dy, const Tensor& places, const Tensor& dx)>
    max_gradient_kernel;

}  // namespace convscope
