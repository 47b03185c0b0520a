// SPDX-License-Identifier: Apache-2.0
// execute.cpp: runs a chosen convolution algorithm, and compares it with a second one when the
// choice has `checked_by`.
#include "layers/conv2d/execute.h"

#include <cmath>
#include <optional>

#include "framework/parallel.h"
#include "layers/conv2d/epilogue.h"
#include "layers/dispatch/execute.h"

namespace convscope {

void Operator<Conv2dProblem>::run(const Call<Conv2dProblem>& call) {
  const Conv2dAlgorithm& algorithm = call.algorithm;
  const Operands& at = call.operands;
  std::optional<ShortLoops> short_loops;
  if (at.device().type == DeviceType::cpu) short_loops.emplace(call.problem.nominal_flops());
  switch (call.direction) {
    case Direction::forward: {
      const Epilogue& behind = at.epilogue;
      CONVSCOPE_CHECK(std::isinf(behind.most) || at.device().type == DeviceType::cpu, "conv2d",
                      "expected a ReLU without an upper bound after a convolution on ",
                      at.device().str(), ", because only CPU kernels support a bound, got ",
                      behind.most);
      algorithm.forward({call.problem, at.input(0), at.input(1), at.input(2), at.output(0),
                         call.workspace, algorithm.fuses_epilogue ? behind : Epilogue{},
                         call.prepared, call.views, at.fp16[0]});
      if (algorithm.fuses_epilogue || behind.empty()) return;
      return conv2d_epilogue_kernel.get(at.device())(behind, at.out[0].values);
    }
    case Direction::backward_data:
      return algorithm.backward_data({call.problem, at.input(0), at.input(1), at.output(0),
                                      call.workspace, call.prepared, call.views, at.fp16[0]});
    case Direction::backward_weight:
      return algorithm.backward_weight({call.problem, at.input(0), at.input(1), at.output(0),
                                        at.accumulate, call.workspace, call.views, at.fp16[0],
                                        at.fp16[1]});
  }
}

void execute_forward(const Conv2dChoice& choice, const Conv2dProblem& problem, const Tensor& x,
                     const Tensor& w, const Tensor& b, const Tensor& y,
                     const Conv2dEpilogue& epilogue) {
  execute(choice, problem, Direction::forward, {.in = {x, w, b}, .out = {y}, .epilogue = epilogue});
}

void execute_backward_data(const Conv2dChoice& choice, const Conv2dProblem& problem,
                           const Tensor& dy, const Tensor& w, const Tensor& dx) {
  execute(choice, problem, Direction::backward_data, {.in = {dy, w}, .out = {dx}});
}

void execute_backward_weight(const Conv2dChoice& choice, const Conv2dProblem& problem,
                             const Tensor& x, const Tensor& dy, const Tensor& dw, bool accumulate) {
  execute(choice, problem, Direction::backward_weight,
          {.in = {x, dy}, .out = {dw}, .accumulate = accumulate});
}

}  // namespace convscope
