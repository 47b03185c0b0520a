// SPDX-License-Identifier: Apache-2.0
// round_weights.h: rounds weights to the codes of the fake quantiser.
#pragma once

#include "framework/kernel_slot.h"
#include "framework/tensor.h"
#include "framework/weight_format.h"
#include "quant/integer_grid.h"

namespace convscope {

// Assigns codes i8 [K,...] = code_of(w f32 [K,...], s). `steps` holds the step sizes s as f64: one
// for all rows, or one for each row. The division is in f32, as in the fake quantiser.
extern CONVSCOPE_API KernelSlot<void(const Tensor& w, const Tensor& steps, const IntegerGrid& grid,
                                     const Tensor& codes)>
    round_weights_kernel;

// Assigns only the codes of the blocks that `at` lists: `codes` i8 [blocks,rows,columns]. The
// kernel reads only these blocks of w. It ignores at.values.
extern CONVSCOPE_API KernelSlot<void(const Tensor& w, const Tensor& steps, const IntegerGrid& grid,
                                     const BlockSparseView& at, const Tensor& codes)>
    round_blocks_kernel;

}  // namespace convscope
