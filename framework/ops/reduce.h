// SPDX-License-Identifier: Apache-2.0
// reduce.h: sums, means and maxima over axes. Element types f32 and f64.
#pragma once

#include <initializer_list>

#include "framework/autograd/variable.h"
#include "framework/kernel_slot.h"

namespace convscope {

// A set of axes; negative ones count from the end. {} in the functions below: all axes.
class CONVSCOPE_API Axes {
 public:
  Axes() = default;
  Axes(std::initializer_list<int> axes);
  bool all() const { return count_ == 0; }
  // One flag for each axis of `shape`, bit i = axis i; an error of `operation` for an axis that is
  // not there or stands twice.
  unsigned mask(const Shape& shape, const char* operation) const;

 private:
  int axes_[Shape::kMaxRank] = {};
  int count_ = 0;
};

// keepdim: the axes stay, with size 1.
CONVSCOPE_API Variable sum(const Variable& x, const Axes& axes = {}, bool keepdim = false);
CONVSCOPE_API Variable mean(const Variable& x, const Axes& axes = {}, bool keepdim = false);
// NaN wins; among equals the first one in memory order gets the gradient. No empty axis.
CONVSCOPE_API Variable max(const Variable& x, const Axes& axes = {}, bool keepdim = false);

// The same without a history.
CONVSCOPE_API Tensor sum(const Tensor& x, const Axes& axes = {}, bool keepdim = false);

// Sums x over the axes whose bit is set in `mask` into y, assigned; y has as many elements as the
// axes that stay.
extern CONVSCOPE_API KernelSlot<void(const Tensor& x, unsigned mask, const Tensor& y)> sum_kernel;
// The same with the maximum; `places` (i32, as many as y) gets the index in x of each maximum.
extern CONVSCOPE_API
    KernelSlot<void(const Tensor& x, unsigned mask, const Tensor& y, const Tensor& places)>
        max_kernel;
// dx = 0, then dx[places[i]] = dy[i].
extern CONVSCOPE_API KernelSlot<void(const Tensor& dy, const Tensor& places, const Tensor& dx)>
    max_gradient_kernel;

}  // namespace convscope
