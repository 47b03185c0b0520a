// SPDX-License-Identifier: Apache-2.0
// run.h: one call of an algorithm, with its workspace and its prepared weights.
#pragma once

#include <cstddef>

#include "framework/memory/memory.h"
#include "layers/dispatch/operands.h"

namespace convscope {

// Allocates the memory of one call besides its tensors: the workspace, followed by the prepared
// weights. Memory statistics count both as workspace. The problem must not be empty.
template <class Problem>
class Scratch {
 public:
  Scratch(const Algorithm<Problem>& algorithm, const Problem& problem, Direction direction,
          Device device, WeightUse use = WeightUse::once)
      : algorithm_(algorithm),
        problem_(problem),
        direction_(direction),
        workspace_bytes_(ScratchArena::round_up(algorithm.workspace_bytes(problem, direction))),
        prepared_bytes_(algorithm.prepared_size(problem, direction, use)),
        memory_(device, workspace_bytes_ + prepared_bytes_) {}

  void* workspace() const { return memory_.data(); }
  std::size_t bytes() const { return memory_.bytes(); }  // of both
  std::size_t prepared_bytes() const { return prepared_bytes_; }
  // Prepares w of the problem's shape; returns null when the algorithm reads w directly.
  const void* prepare(const void* w, const OperandViews& views = {}) const {
    if (prepared_bytes_ == 0) return nullptr;
    void* const prepared = static_cast<std::byte*>(memory_.data()) + workspace_bytes_;
    algorithm_.prepare_weights({problem_, direction_, w, prepared, memory_.data(), views});
    return prepared;
  }

 private:
  const Algorithm<Problem>& algorithm_;
  Problem problem_;
  Direction direction_;
  std::size_t workspace_bytes_;
  std::size_t prepared_bytes_;
  Workspace memory_;
};

// One call of an algorithm: Operator<Problem>::run() passes it to the algorithm's function.
template <class Problem>
struct Call {
  const Algorithm<Problem>& algorithm;
  const Problem& problem;
  Direction direction;
  const Operands& operands;
  OperandViews views;
  void* workspace;
  const void* prepared;  // null: the algorithm reads w directly
};

// Computes the results for no samples: sets outputs to 0, or leaves them unchanged when results are
// added to them. No kernel is called with an empty problem.
CONVSCOPE_API void finish_empty(const Operands& operands);

// Returns the prepared weights in `scratch`; null where the algorithm reads w directly.
template <class Problem>
const void* prepared_weights(const Problem& problem, Direction direction, const Operands& operands,
                             const Scratch<Problem>& scratch) {
  if (problem.is_empty() || direction == Direction::backward_weight) return nullptr;
  return scratch.prepare(operands.input(1), operands.views(direction));
}

template <class Problem>
void run_prepared(const Algorithm<Problem>& algorithm, const Problem& problem, Direction direction,
                  const Operands& operands, const Scratch<Problem>& scratch, const void* prepared) {
  if (problem.is_empty()) return finish_empty(operands);
  Operator<Problem>::run({algorithm, problem, direction, operands, operands.views(direction),
                          scratch.workspace(), prepared});
}

template <class Problem>
void run_algorithm(const Algorithm<Problem>& algorithm, const Problem& problem, Direction direction,
                   const Operands& operands, const Scratch<Problem>& scratch) {
  run_prepared(algorithm, problem, direction, operands, scratch,
               prepared_weights(problem, direction, operands, scratch));
}

template <class Problem>
void run_algorithm(const Algorithm<Problem>& algorithm, const Problem& problem, Direction direction,
                   const Operands& operands) {
  if (problem.is_empty()) return finish_empty(operands);
  const Scratch<Problem> scratch(algorithm, problem, direction, operands.device());
  run_algorithm(algorithm, problem, direction, operands, scratch);
}

}  // namespace convscope
