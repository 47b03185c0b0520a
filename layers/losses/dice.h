// SPDX-License-Identifier: Apache-2.0
// dice.h: the kernel of the soft Dice loss.
#pragma once

#include "framework/kernel_slot.h"
#include "framework/tensor.h"

namespace convscope {

// Reads p [R,K], the softmax of each row, and labels of R elements. Sets terms [K] to the loss of
// each class (dice.cpp), and p to the gradient of their sum with respect to the logits. `scratch`
// has 2 K elements. f32 or f64; sums are in double, in a fixed order.
extern CONVSCOPE_API KernelSlot<void(const Tensor& p, const Tensor& labels, const Tensor& scratch,
                                     const Tensor& terms)>
    dice_kernel;

}  // namespace convscope
