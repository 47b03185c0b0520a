// SPDX-License-Identifier: Apache-2.0
// reads_f32.h: whether a product of tf32 had better read an f32 image as it is. No CUDA here.
#pragma once

#include "framework/kernel_slot.h"
#include "layers/conv2d/problem.h"
#include "layers/dispatch/direction.h"

namespace convscope {

// Of a card that takes half factors (layers/dispatch/layout/half_factors.h), where nobody has made
// them yet: whether one call takes less time without them. In inference an image is multiplied
// once, so that a planned step asks this; in training batch norm writes factors by the way.
extern CONVSCOPE_API KernelSlot<bool(const Conv2dProblem& problem, Direction direction)>
    conv2d_reads_f32_kernel;

}  // namespace convscope
