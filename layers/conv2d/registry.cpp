// SPDX-License-Identifier: Apache-2.0
// registry.cpp: the tables of convolution algorithms and of their ladders, one for each kind of
// device, and one call of an algorithm.
#include <cmath>
#include <optional>

#include "framework/parallel.h"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/epilogue.h"
#include "layers/conv2d/ladder.h"
#include "layers/dispatch/run.h"

namespace convscope {

Registry<Conv2dAlgorithm>& Operator<Conv2dProblem>::algorithms(DeviceType device) {
  static Registry<Conv2dAlgorithm> cpu("convolution algorithm");
  static Registry<Conv2dAlgorithm> cuda("convolution algorithm");
  return device == DeviceType::cpu ? cpu : cuda;
}

void Operator<Conv2dProblem>::run(const Call<Conv2dProblem>& call) {
  const Conv2dAlgorithm& algorithm = call.algorithm;
  const Operands& at = call.operands;
  std::optional<ShortLoops> short_loops;
  if (at.device().type == DeviceType::cpu) short_loops.emplace(call.problem.nominal_flops());
  switch (call.direction) {
    case Direction::forward: {
      const Epilogue& behind = at.epilogue;
      const bool bounds =
          at.device().type == DeviceType::cpu || is_code(call.problem.operand_types().w);
      CONVSCOPE_CHECK(std::isinf(behind.most) || bounds, "conv2d",
                      "expected a ReLU without an upper bound after a convolution on ",
                      at.device().str(),
                      ", because on a GPU only integer kernels support a bound, got ", behind.most);
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

bool register_conv2d_algorithm(const Conv2dAlgorithm& algorithm, const char* file) {
  return register_algorithm(algorithm, file);
}

Registry<Conv2dLadder>& conv2d_ladders(DeviceType device) {
  static Registry<Conv2dLadder> cpu("ladder");
  static Registry<Conv2dLadder> cuda("ladder");
  return device == DeviceType::cpu ? cpu : cuda;
}

bool register_conv2d_ladder(const Conv2dLadder& ladder, const char* file) {
  return conv2d_ladders(ladder.device).add(ladder.name, ladder, file);
}

std::string label_of(const Conv2dRung& rung) {
  std::string out = rung.algorithm;
  if (*rung.isa != '\0') out += cat(", ", rung.isa);
  if (rung.math != MathMode::f32) out += cat(", ", name_of(rung.math));
  if (rung.prepare_each_call) out += ", weights prepared in each call";
  if (rung.threads != 0) out += cat(", ", rung.threads, rung.threads == 1 ? " thread" : " threads");
  return out;
}

}  // namespace convscope
