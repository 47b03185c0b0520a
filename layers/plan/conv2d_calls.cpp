// SPDX-License-Identifier: Apache-2.0
// conv2d_calls.cpp: the calls of a convolution, with dense weights or with kept blocks.
#include "layers/plan/conv2d_calls.h"

namespace convscope {
namespace {

// Memory in which the kept blocks of a weight are stored contiguously.
Slot blocks_slot(Emitter& emitter, const Conv2dWork& work) {
  return emitter.temporary({work.problem.weight_format.stored_elements()}, DType::f32);
}

}  // namespace

Tensor weight_operand(Emitter& emitter, const Conv2dWork& work, const Tensor& w,
                      OperandViews& views) {
  if (!work.blocks) return w;
  Tensor stored = w;
  if (!work.w_is_stored) {
    const Slot values = blocks_slot(emitter, work);
    emitter.call_before([blocks = work.blocks, w, to = emitter.use(values)] {
      blocks->gather(w.data<float>(), to.data<float>());
    });
    stored = emitter.use(values);
  }
  views.w_blocks = work.blocks->view(stored.raw_data());
  return stored;
}

Slot emit_preparation(Emitter& emitter, const Conv2dWork& work, Tensor w) {
  OperandViews views;
  w = weight_operand(emitter, work, w, views);
  return emit_preparation(emitter, *work.choice.algorithm, work.problem, work.direction, w, views);
}

void emit_weight_gradient(Emitter& emitter, const Conv2dWork& work, Operands operands,
                          ValueId weight) {
  if (!work.blocks) {
    return emit_in_type(emitter, work.problem.operand_types().w, emitter.gradient_target(weight),
                        [&](const Emitter::Target& dw) {
                          operands.out[0] = dw.tensor;
                          operands.accumulate = dw.accumulate;
                          emit_call(emitter, work.choice, work.problem, work.direction, operands);
                        });
  }
  const Slot values = blocks_slot(emitter, work);
  const Tensor stored = emitter.use(values);
  operands.out[0] = stored;
  OperandViews views;
  views.w_blocks = work.blocks->view(stored.raw_data());
  emit_call(emitter, work.choice, work.problem, work.direction, operands, {}, views);
  emitter.call(
      [blocks = work.blocks, from = emitter.use(values), dw = emitter.gradient_target(weight)] {
        blocks->scatter(from.data<float>(), dw.tensor.data<float>(), dw.accumulate);
      });
}

void emit_forward_moments(Emitter& emitter, const Conv2dWork& work, const ForwardMoments& kernel,
                          const Operands& operands, const Tensor& moments) {
  const Conv2dAlgorithm& algorithm = *work.choice.algorithm;
  const CallMemory<Conv2dProblem> memory(emitter, algorithm, work.problem, work.direction);
  emitter.call([&algorithm, &kernel, problem = work.problem, memory, operands, moments] {
    run_forward_moments(algorithm, kernel,
                        {.problem = problem,
                         .x = operands.input(0),
                         .w = operands.input(1),
                         .b = operands.input(2),
                         .y = operands.output(0),
                         .workspace = memory.workspace,
                         .prepared = memory.weights(problem, Direction::forward, operands.input(1)),
                         .views = {},
                         .x_half = operands.fp16[0]},
                        moments.data<float>());
  });
}

void emit_joint_backward(Emitter& emitter, const Conv2dWork& work, const JointBackward& both,
                         const Operand& x, const Tensor& dy, const Tensor& w, const Tensor& dx,
                         const Emitter::Target& dw) {
  const Conv2dAlgorithm& algorithm = *work.choice.algorithm;
  const CallMemory<Conv2dProblem> memory(emitter, algorithm, work.problem, work.direction);
  void* const workspace = emitter.workspace(both.workspace_bytes(work.problem));
  emitter.call([&algorithm, &both, problem = work.problem, memory, workspace,
                from = Operands{.in = {dy, w, x}, .out = {dx, dw.tensor}}, add = dw.accumulate] {
    const void* const weights = memory.weights(problem, Direction::backward_data, from.input(1));
    run_joint_backward(algorithm, both,
                       {problem, from.input(0), from.input(1), from.output(0), nullptr, weights},
                       {problem, from.input(2), from.input(0), from.output(1), add, workspace});
  });
}

}  // namespace convscope
