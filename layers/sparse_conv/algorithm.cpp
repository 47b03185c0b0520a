// SPDX-License-Identifier: Apache-2.0
// algorithm.cpp: the tables of algorithms of sparse convolution, and one call of an algorithm.
#include "layers/sparse_conv/algorithm.h"

#include <optional>

#include "framework/parallel.h"
#include "layers/conv2d/epilogue.h"
#include "layers/dispatch/run.h"

namespace convscope {

Registry<SparseConvAlgorithm>& Operator<SparseConvProblem>::algorithms(DeviceType device) {
  static Registry<SparseConvAlgorithm> cpu("algorithm of sparse convolution");
  static Registry<SparseConvAlgorithm> cuda("algorithm of sparse convolution");
  return device == DeviceType::cpu ? cpu : cuda;
}

void Operator<SparseConvProblem>::run(const Call<SparseConvProblem>& call) {
  const Operands& at = call.operands;
  std::optional<ShortLoops> short_loops;
  if (at.device().type == DeviceType::cpu) short_loops.emplace(call.problem.nominal_flops());
  switch (call.direction) {
    case Direction::forward:
      call.algorithm.forward({call.problem, at.input(0), at.input(1), at.input(2), at.output(0),
                              call.workspace, call.prepared});
      if (at.epilogue.empty()) return;
      return conv2d_epilogue_kernel.get(at.device())(at.epilogue, at.out[0].values);
    case Direction::backward_data:
      return call.algorithm.backward_data(
          {call.problem, at.input(0), at.input(1), at.output(0), call.workspace, call.prepared});
    case Direction::backward_weight:
      return call.algorithm.backward_weight(
          {call.problem, at.input(0), at.input(1), at.output(0), at.accumulate, call.workspace});
  }
}

Operands sparse_conv_operands(Direction direction, const SparseConvTensors& t) {
  switch (direction) {
    case Direction::forward:
      return {.in = {t.x, t.w, t.b}, .out = {}};
    case Direction::backward_data:
      return {.in = {t.dy, t.w}, .out = {}};
    case Direction::backward_weight:
      return {.in = {t.x, t.dy}, .out = {}};
  }
  return {};
}

}  // namespace convscope
