// SPDX-License-Identifier: Apache-2.0
// channel_slice.h: an operation that copies a range of channels of images. Offsets and masks are
// two ranges of the channels of one convolution's output.
//
//   y[n,i,h,w] = x[n, first + i, h,w],   i < count;   f32 and f64
#pragma once

#include "framework/graph/simple_operation.h"
#include "framework/kernel_slot.h"

namespace convscope {

CONVSCOPE_API Variable channel_slice(const Variable& x, std::int64_t first, std::int64_t count);

extern CONVSCOPE_API KernelSlot<void(const Tensor& x, std::int64_t first, const Tensor& y)>
    channel_slice_kernel;
// Assigns dx = dy at the channels of the range, which begins at `first`, and 0 at all other
// channels.
extern CONVSCOPE_API KernelSlot<void(const Tensor& dy, std::int64_t first, const Tensor& dx)>
    channel_slice_gradient_kernel;

}  // namespace convscope
