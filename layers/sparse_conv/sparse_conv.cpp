// SPDX-License-Identifier: Apache-2.0
// sparse_conv.cpp: the sparse convolution as a differentiable operation.
#include "layers/sparse_conv/sparse_conv.h"

#include <array>

#include "framework/ops/accumulate.h"
#include "framework/tensor_kernels.h"
#include "layers/batch_norm2d/batch_norm2d_factors.h"
#include "layers/dispatch/execute.h"
#include "layers/sparse_rows/row_sums.h"

namespace convscope {
namespace {

constexpr const char* kOperation = Operator<SparseConvProblem>::kOperation;

void check_operand(const char* name, const Variable& operand, const Shape& shape, const Variable& x,
                   const SparseConvProblem& problem) {
  CONVSCOPE_CHECK(operand.value().shape() == shape && operand.dtype() == x.dtype() &&
                      operand.device() == x.device(),
                  kOperation, "expected ", name, " ", shape,
                  " of the type of x on its device because the problem is ", problem.text(),
                  ", got ", operand.value().str());
}

// Runs one direction by the algorithm that the policy chooses for this map.
void run(const SparseConvProblem& problem, const SparseConvParams& params, Direction direction,
         const Operands& operands) {
  execute(select_algorithm(params.policy.of(direction), problem, direction, operands.device(),
                           WeightUse::once, params.layer),
          problem, direction, operands);
}

// Computes dw. If the problem's type differs from that of dw, dw is first computed in the problem's
// type and then converted.
void sum_weight_gradient(const SparseConvProblem& problem, const SparseConvParams& params,
                         const SparseConvTensors& tensors, const GradientSink::Target& dw) {
  const bool rounded = problem.dtype != dw.tensor.dtype();
  Operands operands = sparse_conv_operands(Direction::backward_weight, tensors);
  operands.out[0] =
      rounded ? Tensor::empty(problem.w_shape(), problem.dtype, dw.tensor.device()) : dw.tensor;
  operands.accumulate = dw.accumulate && !rounded;
  run(problem, params, Direction::backward_weight, operands);
  if (!rounded) return;
  const Tensor& sum = operands.out[0].values;
  if (dw.accumulate) return accumulate(dw.tensor, sum.to(dw.tensor.dtype()));
  convert_kernel.get(sum.device())(sum, dw.tensor);
}

void backward(const SparseConvProblem& problem, const SparseConvParams& params,
              SparseConvTensors tensors, const Tensor& dy, GradientSink& out) {
  if (out.wants(2)) {  // in the type of y: a sum
    const GradientSink::Target db = out.target(2);
    const Tensor sums = Tensor::empty({problem.k}, DType::f64, dy.device());
    row_sums(dy, sums);
    batch_norm_parameter_gradient(sums, Tensor(), db.tensor, db.accumulate);
  }
  tensors.dy = dy.to(problem.dtype);
  if (out.wants(1)) sum_weight_gradient(problem, params, tensors, out.target(1));
  if (!out.wants(0)) return;
  Operands operands = sparse_conv_operands(Direction::backward_data, tensors);
  operands.out[0] = Tensor::empty(problem.x_shape(), problem.dtype, dy.device());
  // Without outputs there are no gradients, and no algorithm is called.
  run(problem, params, Direction::backward_data, operands);
  out.add(0, operands.out[0].values.to(dy.dtype()));
}

}  // namespace

SparseConvProblem sparse_conv_problem(const SharedMap& map, const Shape& x, const Shape& w,
                                      ComputePrecision precision, DType dtype) {
  CONVSCOPE_CHECK(map != nullptr, kOperation, "expected a map, got none");
  CONVSCOPE_CHECK(x.rank() == 2 && x[0] == map->in_sites()->count(), kOperation, "expected x [",
                  map->in_sites()->count(), ",C], a row for each input site of ", map->text(),
                  ", got ", x);
  CONVSCOPE_CHECK(w.rank() == 2 + map->rank() && w[1] == x[1], kOperation, "expected w [K,", x[1],
                  map->rank() == 3 ? ",T,R,S] because x is " : ",R,S] because x is ", x, ", got ",
                  w);
  const SparseConvProblem problem{.map = map,
                                  .c = x[1],
                                  .k = w[0],
                                  .dtype = dtype == DType::f32 ? factor_type(precision) : dtype,
                                  .math = math_mode(precision)};
  problem.check();
  CONVSCOPE_CHECK(problem.w_shape() == w, kOperation, "expected w ", problem.w_shape(),
                  " because the map is ", map->text(), ", got ", w);
  return problem;
}

Variable sparse_conv(const Variable& x, const Variable& w, const Variable& b, const SharedMap& map,
                     const SparseConvParams& params) {
  CONVSCOPE_CHECK(x.dtype() == DType::f32 || x.dtype() == DType::f64, kOperation,
                  "expected x of type f32 or f64, got ", x.value().str());
  const SparseConvProblem problem =
      sparse_conv_problem(map, x.shape(), w.shape(), params.precision, x.dtype());
  check_operand("w", w, problem.w_shape(), x, problem);
  if (b.defined()) check_operand("b", b, {problem.k}, x, problem);
  const DType dtype = problem.dtype;
  const SparseConvTensors all{x.value().to(dtype), w.value().to(dtype),
                              b.defined() ? b.value().to(dtype) : Tensor(), Tensor()};
  Operands operands = sparse_conv_operands(Direction::forward, all);
  operands.out[0] = Tensor::empty(problem.y_shape(), dtype, x.device());
  run(problem, params, Direction::forward, operands);
  const SparseConvTensors kept{w.requires_grad() ? all.x : Tensor(),
                               x.requires_grad() ? all.w : Tensor(), Tensor(), Tensor()};
  return record(kOperation, operands.out[0].values.to(x.dtype()), {x, w, b},
                [problem, params, kept](const Tensor& dy, GradientSink& out) {
                  backward(problem, params, kept, dy, out);
                });
}

}  // namespace convscope
