// SPDX-License-Identifier: Apache-2.0
// add_op.cpp: y = a + b in a compiled step, where a and b have the same shape: the sum of a
// residual block.
#include "layers/plan/add_op.h"

#include "framework/ops/accumulate.h"
#include "framework/ops/elementwise.h"

namespace convscope {

void AddOp::forward(Emitter& builder) {
  builder.call([run = binary_kernel.get(builder.device()), a = builder.value(inputs[0]),
                b = builder.value(inputs[1]),
                y = builder.value(output)] { run(BinaryOp::add, a, b, y); });
}

// Handles the second input first, because the first input takes over the memory of dy and may
// overwrite it.
void AddOp::backward(Emitter& builder) {
  if (builder.wants_gradient(inputs[1])) copy_gradient(builder, output, inputs[1]);
  if (builder.wants_gradient(inputs[0])) builder.pass_gradient(output, inputs[0]);
}

void copy_gradient(Emitter& builder, ValueId output, ValueId value) {
  const Emitter::Target to = builder.gradient_target(value);
  builder.call([add = accumulate_kernel.get(builder.device()), dy = builder.gradient(output), to] {
    if (to.accumulate) {
      add(to.tensor, dy);
    } else {
      to.tensor.copy_from(dy);
    }
  });
}

}  // namespace convscope
