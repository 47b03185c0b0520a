// SPDX-License-Identifier: Apache-2.0
// round_weights.h: weights as the codes that the fake quantiser rounds them to.
#pragma once

#include "framework/kernel_slot.h"
#include "framework/tensor.h"
#include "layers/dispatch/weight_format.h"
#include "quant/integer_grid.h"

namespace convscope {

// codes i8 [K,...] = code_of(w f32 [K,...], s): `steps` holds s as f64, one for all rows or one for
// each. The division is one of f32, as that of the fake quantiser.
extern CONVSCOPE_API KernelSlot<void(const Tensor& w, const Tensor& steps, const IntegerGrid& grid,
                                     const Tensor& codes)>
    round_weights_kernel;

// The same codes of the blocks that `at` names alone: `codes` i8 [blocks,rows,columns]. Nothing
// else of w is read. at.values is not used.
extern CONVSCOPE_API KernelSlot<void(const Tensor& w, const Tensor& steps, const IntegerGrid& grid,
                                     const BlockSparseView& at, const Tensor& codes)>
    round_blocks_kernel;

}  // namespace convscope
