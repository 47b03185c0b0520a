// SPDX-License-Identifier: Apache-2.0
// rounded_operand.h: rounds an operand of a product to half precision in an eager call.
#pragma once

#include "framework/graph/emitter.h"
#include "framework/tensor_kernels.h"

namespace convscope {

// Returns `from` in the given type: itself if it has that type, else the tensor of `slot`. The
// first call creates the slot and emits the rounding.
inline Tensor rounded_operand(Emitter& emitter, const Tensor& from, DType type, Slot& slot) {
  if (from.dtype() == type) return from;
  if (slot == kNoSlot) {
    slot = emitter.slot(from.shape(), type);
    emitter.call_before(
        [from, to = emitter.use(slot)] { convert_kernel.get(to.device())(from, to); });
  }
  return emitter.use(slot);
}

// Returns an operand that the forward pass may have rounded.
inline Tensor saved_operand(Emitter& emitter, ValueId value, Slot rounded) {
  return rounded == kNoSlot ? emitter.value(value) : emitter.use(rounded);
}

}  // namespace convscope
