// SPDX-License-Identifier: Apache-2.0
// deform_conv2d.cpp: the deformable convolution as a differentiable operation.
#include "layers/deform_conv2d/deform_conv2d.h"

#include "framework/ops/accumulate.h"
#include "framework/tensor_kernels.h"
#include "layers/conv2d/bias_gradient.h"
#include "layers/dispatch/execute.h"

namespace convscope {

template class ChoiceCache<DeformConv2dProblem>;

namespace {

constexpr const char* kOperation = Operator<DeformConv2dProblem>::kOperation;

void check_operand(const char* name, const Variable& operand, const Shape& shape, const Variable& x,
                   const DeformConv2dProblem& problem) {
  CONVSCOPE_CHECK(operand.value().shape() == shape && operand.dtype() == x.dtype() &&
                      operand.device() == x.device(),
                  kOperation, "expected ", name, " ", shape,
                  " of the type of x on its device because the problem is ", problem.text(),
                  ", got ", operand.value().str());
}

DeformConv2dProblem checked_problem(const Variable& x, const Variable& offset, const Variable& mask,
                                    const Variable& w, const Variable& b,
                                    const DeformConv2dParams& params) {
  const Tensor& xv = x.value();
  CONVSCOPE_CHECK(xv.dtype() == DType::f32 || xv.dtype() == DType::f64, kOperation,
                  "expected x of type f32 or f64, got ", xv.str());
  CONVSCOPE_CHECK(offset.defined(), kOperation, "expected offset to say where to sample, got none");
  const DeformConv2dProblem problem =
      deform_conv2d_problem(x.shape(), w.shape(), params, mask.defined(), x.dtype());
  check_operand("w", w, problem.w_shape(), x, problem);
  check_operand("offset", offset, problem.offset_shape(), x, problem);
  if (mask.defined()) check_operand("mask", mask, problem.mask_shape(), x, problem);
  if (b.defined()) check_operand("b", b, {problem.k}, x, problem);
  return problem;
}

// As for a convolution, a call without gradients counts as inference.
WeightUse use_of(bool recorded) { return recorded ? WeightUse::once : WeightUse::often; }

// Returns the tensors in the element type that the kernels multiply: unchanged, or rounded to half
// precision.
DeformConv2dTensors rounded_tensors(DType dtype, const Variable& x, const Variable& w,
                                    const Variable& offset, const Variable& mask,
                                    const Variable& b) {
  const auto value = [&](const Variable& v) {
    return v.defined() ? v.value().to(dtype) : Tensor();
  };
  return {value(x), value(w), value(offset), value(mask), value(b), {}};
}

// Computes dw. If the problem's type differs from that of dw, dw is first computed in the problem's
// type and then converted.
template <class Run>
void sum_weight_gradient(const DeformConv2dProblem& problem, const DeformConv2dTensors& tensors,
                         const GradientSink::Target& dw, const Run& run) {
  const bool rounded = problem.dtype != dw.tensor.dtype();
  Operands operands = deform_conv2d_operands(Direction::backward_weight, tensors);
  operands.out[0] =
      rounded ? Tensor::empty(problem.w_shape(), problem.dtype, dw.tensor.device()) : dw.tensor;
  operands.accumulate = dw.accumulate && !rounded;
  run(Direction::backward_weight, operands);
  if (!rounded) return;
  const Tensor& sum = operands.out[0].values;
  if (dw.accumulate) return accumulate(dw.tensor, sum.to(dw.tensor.dtype()));
  convert_kernel.get(sum.device())(sum, dw.tensor);
}

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
          Tensor::empty(specs.outputs[i].shape, problem.dtype, operands.in[0].values.device());
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
  const DeformConv2dProblem problem = checked_problem(x, offset, mask, w, b, params);
  const Device device = x.device();
  const auto wanted = [](const Variable& v) { return v.defined() && v.requires_grad(); };
  const WeightUse use = use_of(needs_record(x, offset, mask, w, b));
  const DeformConv2dTensors all = rounded_tensors(problem.dtype, x, w, offset, mask, b);
  const Tensor y = Tensor::empty(problem.y_shape(), problem.dtype, device);
  Operands forward = deform_conv2d_operands(Direction::forward, all);
  forward.out[0] = y;
  execute_deform_conv2d(choices->get(problem, Direction::forward, device, use), problem,
                        Direction::forward, forward);
  // The gradients of offset and mask read x, and so does dw.
  const bool reads_data = wanted(x) || wanted(offset) || wanted(mask);
  DeformConv2dTensors kept = all;
  kept.b = Tensor();
  if (!reads_data) kept.w = Tensor();
  if (!reads_data && !wanted(w)) kept = {};
  return record(kOperation, y.to(x.dtype()), {x, offset, mask, w, b},
                [problem, choices, kept](const Tensor& dy, GradientSink& out) {
                  const Device on = dy.device();
                  DeformConv2dTensors tensors = kept;
                  tensors.dy = dy.to(problem.dtype);
                  const auto run = [&](Direction direction, const Operands& operands) {
                    execute_deform_conv2d(choices->get(problem, direction, on, WeightUse::once),
                                          problem, direction, operands);
                  };
                  if (out.wants(4)) {  // db has the type of y
                    const GradientSink::Target db = out.target(4);
                    conv2d_bias_gradient_kernel.get(on)(dy, db.tensor, db.accumulate);
                  }
                  if (out.wants(3)) sum_weight_gradient(problem, tensors, out.target(3), run);
                  if (!out.wants(0) && !out.wants(1) && !out.wants(2)) return;
                  // Inputs 0, 1 and 2 are x, offset and mask; output i is the gradient of input i.
                  Operands operands = deform_conv2d_operands(Direction::backward_data, tensors);
                  const OperandSpecs specs = problem.operands(Direction::backward_data);
                  for (std::size_t i = 0; i < specs.outputs.size(); ++i) {
                    if (!out.wants(static_cast<int>(i))) continue;
                    operands.out[i] = Tensor::empty(specs.outputs[i].shape, problem.dtype, on);
                  }
                  run(Direction::backward_data, operands);
                  for (std::size_t i = 0; i < specs.outputs.size(); ++i) {
                    if (out.wants(static_cast<int>(i))) {
                      out.add(static_cast<int>(i), operands.out[i].values.to(dy.dtype()));
                    }
                  }
                });
}

}  // namespace convscope
