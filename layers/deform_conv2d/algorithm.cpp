// SPDX-License-Identifier: Apache-2.0
// algorithm.cpp: the tables of algorithms of deformable convolution, and one call of an algorithm.
#include "layers/deform_conv2d/algorithm.h"

#include <optional>

#include "framework/parallel.h"
#include "layers/conv2d/epilogue.h"
#include "layers/deform_conv2d/deform_loops.h"
#include "layers/dispatch/run.h"

namespace convscope {

Registry<DeformConv2dAlgorithm>& Operator<DeformConv2dProblem>::algorithms(DeviceType device) {
  static Registry<DeformConv2dAlgorithm> cpu("algorithm of deformable convolution");
  static Registry<DeformConv2dAlgorithm> cuda("algorithm of deformable convolution");
  return device == DeviceType::cpu ? cpu : cuda;
}

void Operator<DeformConv2dProblem>::run(const Call<DeformConv2dProblem>& call) {
  const Operands& at = call.operands;
  std::optional<ShortLoops> short_loops;
  if (at.device().type == DeviceType::cpu) short_loops.emplace(call.problem.nominal_flops());
  switch (call.direction) {
    case Direction::forward:
      call.algorithm.forward({call.problem, at.input(0), at.input(1), at.input(2), at.input(3),
                              at.input(4), at.output(0), call.workspace, call.prepared});
      if (at.epilogue.empty()) return;
      return conv2d_epilogue_kernel.get(at.device())(at.epilogue, at.out[0].values);
    case Direction::backward_data:
      return call.algorithm.backward_data({call.problem, at.input(0), at.input(1), at.input(2),
                                           at.input(3), at.input(4), at.output(0), at.output(1),
                                           at.output(2), call.workspace, call.prepared});
    case Direction::backward_weight:
      return call.algorithm.backward_weight({call.problem, at.input(0), at.input(1), at.input(2),
                                             at.input(3), at.output(0), at.accumulate,
                                             call.workspace});
  }
}

Operands Operator<DeformConv2dProblem>::magnitudes(const DeformConv2dProblem& problem,
                                                   Direction direction, const Operands& operands) {
  DeformConv2dProblem plain = problem;
  plain.layout = ActivationLayout::nchw;
  if (plain.dtype != DType::f64) plain.dtype = DType::f32;  // half types: same positions
  const OperandSpecs from = problem.operands(direction), specs = plain.operands(direction);
  const auto on_host = [&](const Tensor& t, const OperandSpec& spec) {
    return plain_images(t.to(Device{}).to(plain.dtype), spec.desc.shape, spec.desc.layout);
  };
  Operands out;
  for (std::size_t i = 0; i < operands.in.size(); ++i) {
    if (!operands.in[i].defined()) continue;
    const Tensor& values = operands.in[i].values;
    // operands.in ends with the bias, for which `from.inputs` has no entry.
    out.in[i] = i < from.inputs.size() ? on_host(values, from.inputs[i])
                                       : values.to(Device{}).to(plain.dtype);
  }
  out.accumulate = operands.accumulate;
  for (std::size_t i = 0; i < specs.outputs.size(); ++i) {
    out.out[i] = operands.accumulate ? on_host(operands.out[i].values, from.outputs[i]).clone()
                                     : Tensor::empty(specs.outputs[i].desc.shape, plain.dtype);
  }
  if (plain.dtype == DType::f64) {
    deform::run_loops<deform::Sign::magnitudes, double>(plain, direction, out);
  } else {
    deform::run_loops<deform::Sign::magnitudes, float>(plain, direction, out);
  }
  return out;
}

Operands deform_conv2d_operands(Direction direction, const DeformConv2dTensors& t) {
  switch (direction) {
    case Direction::forward:
      return {.in = {t.x, t.w, t.offset, t.mask, t.b}, .out = {}};
    case Direction::backward_data:
      return {.in = {t.dy, t.w, t.x, t.offset, t.mask}, .out = {}};
    case Direction::backward_weight:
      return {.in = {t.x, t.dy, t.offset, t.mask}, .out = {}};
  }
  return {};
}

}  // namespace convscope
