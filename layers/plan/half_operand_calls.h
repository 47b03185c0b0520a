// SPDX-License-Identifier: Apache-2.0
// half_operand_calls.h: the fp16 operands of an f32 image, or of its gradient, in a compiled step:
// a block of bytes (dispatch/layout/half_operands.h). The kernel that writes the image may write
// the block; it then stores an upper bound of the magnitudes after the scale. Otherwise the first
// reader emits the call that makes the block.
#pragma once

#include "framework/graph/emitter.h"

namespace convscope {

// Emits the call that makes the operands of `value` or of its gradient, unless they exist.
CONVSCOPE_API void make_operands(Emitter& emitter, ValueId value, Companion kind);
// Returns the block for the next call to read.
inline Tensor operands(Emitter& emitter, ValueId value, Companion kind) {
  return emitter.use(emitter.companion(value, kind).slot);
}
// Returns the block for the next call to write: without `elements`, only scale and bound.
CONVSCOPE_API Tensor operands_target(Emitter& emitter, ValueId value, Companion kind,
                                     bool elements = true, bool bound = false);

}  // namespace convscope
