// SPDX-License-Identifier: Apache-2.0
// reads_f32.h: whether a tf32 product should read an f32 image directly, and what its fp16 operands
// cost. It needs no CUDA.
#pragma once

#include "framework/kernel_slot.h"
#include "layers/conv2d/algorithm.h"
#include "layers/dispatch/direction.h"
#include "layers/dispatch/layout/half_operands_cost.h"

namespace convscope {

// Returns whether a call that reads the f32 image directly is faster than one that must make fp16
// operands first (layers/dispatch/layout/half_operands.h). In inference an image is multiplied
// once, so a compiled step calls this function. In training, batch norm writes the operands as a
// by-product.
extern CONVSCOPE_API KernelSlot<bool(const Conv2dProblem& problem, Direction direction)>
    conv2d_reads_f32_kernel;

// Returns the time that a call takes less if fp16 operands of its images are given.
inline double operands_of_call_ms(const Conv2dAlgorithm& algorithm, const Conv2dProblem& problem,
                                  Direction direction) {
  const auto stored = [&](const Shape& images) {
    return number(stored_shape(images, ActivationLayout::nhwc).numel());
  };
  const Cost alone = algorithm.cost(problem, direction);
  Cost with_passes = alone;
  add_half_operands(with_passes,
                    (direction == Direction::backward_data ? 0 : stored(problem.x_shape())) +
                        (direction == Direction::forward ? 0 : stored(problem.y_shape())));
  const auto ms = [&](const Cost& cost) {
    return estimated_ms(cost_key_of(algorithm, direction), cost, algorithm.device,
                        operand_type_of(problem));
  };
  return ms(with_passes) - ms(alone);  // passes add to the time
}

}  // namespace convscope
