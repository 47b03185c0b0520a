// SPDX-License-Identifier: Apache-2.0
// conv2d_calls.cpp: the kernel calls of a convolution in a compiled step: the algorithm's functions
// with ready arguments.
#include "layers/plan/conv2d_calls.h"

#include "layers/conv2d/epilogue.h"
#include "layers/dispatch/layout/half_operands.h"

namespace convscope {
namespace {

void* address_of(const Tensor& tensor) { return tensor.defined() ? tensor.raw_data() : nullptr; }

const void* address_of(const Tensor& tensor, const StepState* state) {
  return tensor.defined() ? tensor.raw_data() : state->images;
}

HalfOperands operands_in(const Tensor& block) {
  return block.defined() ? half_operands_in(block.raw_data()) : HalfOperands{};
}

void* workspace_of(Emitter& emitter, const Conv2dWork& work) {
  return emitter.workspace(work.algorithm->workspace_bytes(work.problem, work.direction));
}

// Returns memory in which the kept blocks of the weight are stored contiguously.
void* stored_blocks(Emitter& emitter, const Conv2dWork& work) {
  return emitter.workspace(static_cast<std::size_t>(work.problem.weight_format.stored_elements()) *
                           sizeof(float));
}

// The calls that prepare weights before a call that reads prepared weights.
struct Preparation {
  void (*run)(const Conv2dPrepareArgs&) = nullptr;  // null: already done, or not needed
  Direction direction = Direction::forward;
  Tensor w = {};
  void* prepared = nullptr;
  void* workspace = nullptr;
  Ref<SparseWeights> blocks = {};
  void* values = nullptr;  // w is gathered into this memory first; null: w holds the blocks

  // Prepares the weights if needed and returns them.
  const void* operator()(const Conv2dProblem& problem) const {
    if (run == nullptr) return prepared;
    if (!blocks) {
      run({problem, direction, w.raw_data(), prepared, workspace});
      return prepared;
    }
    if (values != nullptr) blocks->gather(w.data<float>(), static_cast<float*>(values));
    const void* const stored = values != nullptr ? values : w.raw_data();
    OperandViews views;
    views.w_blocks = blocks->view(stored);
    run({problem, direction, stored, prepared, workspace, views});
    return prepared;
  }
};

Preparation preparation_of(Emitter& emitter, const Conv2dWork& work, const Tensor& w,
                           void* prepared, void* workspace) {
  Preparation out{.run = work.algorithm->prepare_weights,
                  .direction = work.direction,
                  .w = w,
                  .prepared = prepared,
                  .workspace = workspace,
                  .blocks = work.blocks};
  if (work.blocks && !work.w_is_stored) out.values = stored_blocks(emitter, work);
  return out;
}

// Training changes the weights in each step, so the weights are prepared right before the call.
Preparation preparation_of_step(Emitter& emitter, const Conv2dWork& work, const Tensor& w,
                                void* workspace) {
  const std::size_t bytes =
      work.algorithm->prepared_size(work.problem, work.direction, WeightUse::once);
  if (bytes == 0) return {};
  return preparation_of(emitter, work, w, emitter.workspace(bytes), workspace);
}

}  // namespace

Slot emit_preparation(Emitter& emitter, const Conv2dWork& work, const Tensor& w) {
  const auto bytes =
      static_cast<std::int64_t>(work.algorithm->prepared_size(work.problem, work.direction));
  const Slot prepared = emitter.slot({bytes}, DType::u8);
  const Tensor to = emitter.use(prepared);
  const Preparation prepare =
      preparation_of(emitter, work, w, to.raw_data(), workspace_of(emitter, work));
  emitter.call([prepare, problem = work.problem, to] { prepare(problem); });
  return prepared;
}

void emit_forward(Emitter& emitter, const Conv2dWork& work, const Conv2dForwardTensors& tensors,
                  const Conv2dEpilogue& behind) {
  void* const workspace = workspace_of(emitter, work);
  const Preparation prepare = emitter.graph().training()
                                  ? preparation_of_step(emitter, work, tensors.w, workspace)
                                  : Preparation{.prepared = address_of(tensors.prepared)};
  const bool fuses = work.algorithm->fuses_epilogue;
  const ForwardMoments* const moments =
      tensors.moments.defined() ? forward_moments_of(*work.algorithm, work.problem) : nullptr;
  emitter.call([problem = work.problem, algorithm = work.algorithm, moments,
                state = emitter.state(), at = tensors, prepare, workspace,
                fused = fuses ? behind : Conv2dEpilogue{},
                separate = fuses ? Conv2dEpilogue{} : behind, device = emitter.device()] {
    const Conv2dForwardArgs args{.problem = problem,
                                 .x = at.x_half.defined() ? nullptr : address_of(at.x, state),
                                 .w = address_of(at.w),
                                 .b = address_of(at.b),
                                 .y = at.y.raw_data(),
                                 .workspace = workspace,
                                 .epilogue = fused,
                                 .prepared = prepare(problem),
                                 .views = at.views,
                                 .x_half = operands_in(at.x_half)};
    if (moments != nullptr) {
      return run_forward_moments(*algorithm, *moments, args, at.moments.data<float>());
    }
    algorithm->forward(args);
    if (!separate.empty()) conv2d_epilogue_kernel.get(device)(separate, at.y);
  });
}

void emit_backward_data(Emitter& emitter, const Conv2dWork& work, const Tensor& dy, const Tensor& w,
                        const Tensor& dx, const Tensor& dy_half) {
  void* const workspace = workspace_of(emitter, work);
  const Preparation prepare = preparation_of_step(emitter, work, w, workspace);
  emitter.call([problem = work.problem, run = work.algorithm->backward_data, w, dy, dx, workspace,
                prepare, dy_half] {
    run({.problem = problem,
         .dy = address_of(dy),
         .w = w.raw_data(),
         .dx = dx.raw_data(),
         .workspace = workspace,
         .prepared = prepare(problem),
         .views = {},
         .dy_half = operands_in(dy_half)});
  });
}

void emit_backward_weight(Emitter& emitter, const Conv2dWork& work, const Tensor& x,
                          const Tensor& dy, const Emitter::Target& dw, const Tensor& x_half,
                          const Tensor& dy_half) {
  void* const workspace = workspace_of(emitter, work);
  const auto run = work.algorithm->backward_weight;
  if (!work.blocks) {
    return emitter.call([problem = work.problem, run, state = emitter.state(), x, dy, dw, workspace,
                         x_half, dy_half] {
      run({.problem = problem,
           .x = x_half.defined() ? nullptr : address_of(x, state),
           .dy = address_of(dy),
           .dw = dw.tensor.raw_data(),
           .accumulate = dw.accumulate,
           .workspace = workspace,
           .views = {},
           .x_half = operands_in(x_half),
           .dy_half = operands_in(dy_half)});
    });
  }
  emitter.call([problem = work.problem, run, state = emitter.state(), x, dy, dw, workspace,
                blocks = work.blocks, values = stored_blocks(emitter, work)] {
    OperandViews views;
    views.w_blocks = blocks->view(values);
    run({problem, address_of(x, state), dy.raw_data(), values, false, workspace, views});
    blocks->scatter(static_cast<const float*>(values), dw.tensor.data<float>(), dw.accumulate);
  });
}

void emit_joint_backward(Emitter& emitter, const Conv2dWork& work, const JointBackward& both,
                         const Tensor& x, const Tensor& dy, const Tensor& w, const Tensor& dx,
                         const Emitter::Target& dw) {
  const Preparation prepare = preparation_of_step(emitter, work, w, workspace_of(emitter, work));
  void* const workspace = emitter.workspace(both.workspace_bytes(work.problem));
  emitter.call([algorithm = work.algorithm, &both, problem = work.problem, state = emitter.state(),
                x, dy, w, dx, dw, prepare, workspace] {
    run_joint_backward(
        *algorithm, both,
        {problem, dy.raw_data(), w.raw_data(), dx.raw_data(), nullptr, prepare(problem)},
        {problem, address_of(x, state), dy.raw_data(), dw.tensor.raw_data(), dw.accumulate,
         workspace});
  });
}

}  // namespace convscope
