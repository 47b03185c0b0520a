// SPDX-License-Identifier: Apache-2.0
// reads_f32.h: whether a tf32 product should read an f32 image directly. It needs no CUDA.
#pragma once

#include "framework/kernel_slot.h"
#include "layers/conv2d/problem.h"
#include "layers/dispatch/direction.h"

namespace convscope {

// Returns whether a call that reads the f32 image directly is faster than one that must make fp16
// operands first (layers/dispatch/layout/half_operands.h). In inference an image is multiplied
// once, so a compiled step calls this function. In training, batch norm writes the operands as a
// by-product.
extern CONVSCOPE_API KernelSlot<bool(const Conv2dProblem& problem, Direction direction)>
    conv2d_reads_f32_kernel;

}  // namespace convscope
