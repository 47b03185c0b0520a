// SPDX-License-Identifier: Apache-2.0
// deform_conv2d.cpp: the deformable convolution as a differentiable operation.
#include "layers/deform_conv2d/deform_conv2d.h"

#include "framework/graph/apply.h"
#include "layers/deform_conv2d/deform_conv2d_op.h"
#include "layers/dispatch/execute.h"

namespace convscope {

template class ChoiceCache<DeformConv2dProblem>;

namespace {

constexpr const char* kOperation = Operator<DeformConv2dProblem>::kOperation;

}  // namespace

DeformConv2dProblem deform_conv2d_problem(const Shape& x, const Shape& w,
                                          const DeformConv2dParams& params, bool mask,
                                          DType dtype) {
  const DeformConv2dProblem problem(conv2d_problem(x, w, params.conv, dtype, kOperation),
                                    params.offset_groups, mask);
  problem.check();
  return problem;
}

void execute_deform_conv2d(const DeformConv2dChoice& choice, const DeformConv2dProblem& problem,
                           Direction direction, Operands operands) {
  if (choice.checked_by != nullptr) {  // compares all outputs
    const OperandSpecs specs = problem.operands(direction);
    for (std::size_t i = 0; i < specs.outputs.size(); ++i) {
      if (operands.out[i].defined()) continue;
      operands.out[i] =
          Tensor::empty(specs.outputs[i].desc.shape, problem.dtype, operands.in[0].values.device());
    }
  }
  execute(choice, problem, direction, operands);
}

Variable deform_conv2d(const Variable& x, const Variable& offset, const Variable& mask,
                       const Variable& w, const Variable& b, const DeformConv2dParams& params,
                       const AlgorithmPolicy& policy) {
  return deform_conv2d(x, offset, mask, w, b, params, make_ref<DeformConv2dChoices>(policy));
}

Variable deform_conv2d(const Variable& x, const Variable& offset, const Variable& mask,
                       const Variable& w, const Variable& b, const DeformConv2dParams& params,
                       const Ref<DeformConv2dChoices>& choices) {
  CONVSCOPE_CHECK(offset.defined(), kOperation, "expected offset to say where to sample, got none");
  std::vector<Variable> inputs{x, w, offset};
  if (mask.defined()) inputs.push_back(mask);
  inputs.push_back(b);
  return convscope::apply(
      std::make_unique<DeformConv2dOp>(params, mask.defined(), b.defined(), choices), inputs);
}

}  // namespace convscope
