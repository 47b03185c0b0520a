// SPDX-License-Identifier: Apache-2.0
// half_operand_calls.cpp: the fp16 operands of an f32 image, or of its gradient, in a compiled
// step.
#include "layers/plan/half_operand_calls.h"

#include "layers/dispatch/layout/half_operands.h"

namespace convscope {

void make_operands(Emitter& emitter, ValueId value, Companion kind) {
  if (emitter.companion(value, kind).has_elements) return;
  const Tensor from = kind == Companion::operands ? emitter.value(value) : emitter.gradient(value);
  emitter.call([run = pack_half_operands_kernel.get(emitter.device()), from,
                to = operands_target(emitter, value, kind)] { run(from, to.raw_data()); });
}

Tensor operands_target(Emitter& emitter, ValueId value, Companion kind, bool elements, bool bound) {
  const std::int64_t count = emitter.graph().stored_shape(value).numel();
  const std::size_t bytes = elements ? half_operands_bytes(count) : kHalfOperandsHead;
  CompanionSlot& to = emitter.companion(value, kind);
  to = {.slot = emitter.slot({static_cast<std::int64_t>(bytes)}, DType::u8),
        .has_elements = elements,
        .has_bound = bound};
  return emitter.use(to.slot);
}

}  // namespace convscope
