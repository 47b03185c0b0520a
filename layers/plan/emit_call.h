// SPDX-License-Identifier: Apache-2.0
// emit_call.h: emits one direction of an operator: the algorithm that a policy has chosen, with its
// workspace and its prepared weights. An eager emitter runs the call at once.
#pragma once

#include "framework/graph/emitter.h"
#include "framework/ops/accumulate.h"
#include "framework/tensor_kernels.h"
#include "layers/dispatch/execute.h"

namespace convscope {

// Returns a value as an operand of the next call. The address of a step's images is read when the
// call runs.
inline Operand operand_of(Emitter& emitter, ValueId value) {
  if (value != Graph::input()) return emitter.value(value);
  Operand out;
  out.address = &emitter.state()->images;
  return out;
}

// Emits the preparation of weights that stay constant. Call it in Emitter::prologue(), and only
// where algorithm.prepared_size() is not 0. Returns the slot of the prepared weights.
template <class Problem>
Slot emit_preparation(Emitter& emitter, const Algorithm<Problem>& algorithm, const Problem& problem,
                      Direction direction, const Tensor& w, const OperandViews& views = {}) {
  const auto bytes = static_cast<std::int64_t>(algorithm.prepared_size(problem, direction));
  const Slot prepared = emitter.slot({bytes}, DType::u8);
  void* const workspace = emitter.workspace(algorithm.workspace_bytes(problem, direction));
  emitter.call([run = algorithm.prepare_weights, problem, direction, w, workspace, views,
                to = emitter.use(prepared)] {
    run({problem, direction, w.raw_data(), to.raw_data(), workspace, views});
  });
  return prepared;
}

// The memory of the next call besides its operands.
template <class Problem>
struct CallMemory {
  // Reserves the memory. `kept` holds weights from emit_preparation(). If it is undefined, each
  // call prepares weights, where the algorithm reads prepared ones.
  CallMemory(Emitter& emitter, const Algorithm<Problem>& algorithm, const Problem& problem,
             Direction direction, const Tensor& kept = {})
      : workspace(emitter.workspace(algorithm.workspace_bytes(problem, direction))),
        kept_(kept),
        prepare_(algorithm.prepare_weights) {
    if (kept.defined()) return;
    in_call_ = emitter.workspace(algorithm.prepared_size(problem, direction, WeightUse::once));
  }

  // Returns the prepared weights, or null if the algorithm reads w.
  const void* weights(const Problem& problem, Direction direction, const void* w,
                      const OperandViews& views = {}) const {
    if (kept_.defined()) return kept_.raw_data();
    if (in_call_ != nullptr) prepare_({problem, direction, w, in_call_, workspace, views});
    return in_call_;
  }

  void* workspace;

 private:
  Tensor kept_;
  void (*prepare_)(const PrepareArgs<Problem>&);
  void* in_call_ = nullptr;
};

// Emits the call. `views` has the scales and positions of quantised or block-sparse operands.
template <class Problem>
void emit_call(Emitter& emitter, const Choice<Problem>& choice, const Problem& problem,
               Direction direction, const Operands& operands, const Tensor& kept_weights = {},
               const OperandViews& views = {}) {
  if (emitter.is_learning()) return;  // the operands have been named
  if (choice.checked_by != nullptr) {
    return emitter.call(
        [choice, problem, direction, operands] { execute(choice, problem, direction, operands); });
  }
  const CallMemory<Problem> memory(emitter, *choice.algorithm, problem, direction, kept_weights);
  emitter.call([algorithm = choice.algorithm, problem, direction, operands, views, memory] {
    Operator<Problem>::run({*algorithm, problem, direction, operands, views, memory.workspace,
                            memory.weights(problem, direction, operands.input(1), views)});
  });
}

// Emits a result that is computed in `type`: emit(target) emits the call that computes it. If `to`
// has another type, `target` is a temporary, which is converted.
template <class Emit>
void emit_in_type(Emitter& emitter, DType type, const Emitter::Target& to, Emit&& emit) {
  if (to.tensor.dtype() == type || emitter.is_learning()) return emit(to);
  const Slot slot = emitter.slot(to.tensor.shape(), type);
  emit(Emitter::Target{.tensor = emitter.use(slot)});
  if (!to.accumulate) {
    return emitter.call([from = emitter.use(slot), to = to.tensor] {
      convert_kernel.get(from.device())(from, to);
    });
  }
  const Slot converted = emitter.slot(to.tensor.shape(), to.tensor.dtype());
  emitter.call([from = emitter.use(slot), part = emitter.use(converted), to = to.tensor] {
    convert_kernel.get(from.device())(from, part);
    accumulate(to, part);
  });
}

}  // namespace convscope
