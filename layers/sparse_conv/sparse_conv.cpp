// SPDX-License-Identifier: Apache-2.0
// sparse_conv.cpp: the sparse convolution as a differentiable operation.
#include "layers/sparse_conv/sparse_conv.h"

#include <array>

#include "framework/graph/apply.h"
#include "framework/graph/rounded_operand.h"
#include "framework/ops/accumulate.h"
#include "framework/tensor_kernels.h"
#include "layers/batch_norm2d/batch_norm2d_factors.h"
#include "layers/dispatch/execute.h"
#include "layers/sparse_rows/row_sums.h"

namespace convscope {
namespace {

constexpr const char* kOperation = Operator<SparseConvProblem>::kOperation;

// Inputs: x, w, and b if there is one.
class SparseConvOp final : public Operation {
 public:
  SparseConvOp(const SharedMap& map, const SparseConvParams& params, bool has_bias)
      : Operation(kOperation), map_(map), params_(params), has_bias_(has_bias) {}

  TensorDesc bind(Graph& graph) override {
    expect_eager(&graph);
    check_real_inputs(graph, *this);
    const TensorDesc& x = graph.desc(inputs[0]);
    problem_ =
        sparse_conv_problem(map_, x.shape, graph.shape(inputs[1]), params_.precision, x.dtype);
    if (has_bias_) {
      CONVSCOPE_CHECK(graph.shape(inputs[2]) == Shape{problem_.k}, kOperation, "expected b [",
                      problem_.k, "] because the problem is ", problem_.text(), ", got ",
                      graph.shape(inputs[2]));
    }
    return {problem_.y_shape(), x.dtype};
  }

  void forward(Emitter& emitter) override {
    const DType type = problem_.dtype;
    const Tensor b = has_bias_ ? emitter.value(inputs[2]) : Tensor();
    const SparseConvTensors all{
        rounded_operand(emitter, emitter.value(inputs[0]), type, x_rounded_),
        rounded_operand(emitter, emitter.value(inputs[1]), type, w_rounded_),
        has_bias_ ? b.to(type) : b, Tensor()};
    emitter.call([&] {
      write(Direction::forward, all, {emitter.value(output()), /*accumulate=*/false});
    });
  }

  void backward(Emitter& emitter) override {
    const Graph& graph = emitter.graph();
    const Tensor dy = emitter.gradient(output());
    if (has_bias_ && graph.wants_gradient(inputs[2])) {  // in the type of y: a sum
      const Emitter::Target db = emitter.gradient_target(inputs[2]);
      emitter.call([&] {
        const Tensor sums = Tensor::empty({problem_.k}, DType::f64, dy.device());
        row_sums(dy, sums);
        batch_norm_parameter_gradient(sums, Tensor(), db.tensor, db.accumulate);
      });
    }
    Slot dy_rounded = kNoSlot;
    SparseConvTensors tensors;
    tensors.dy = rounded_operand(emitter, dy, problem_.dtype, dy_rounded);
    if (graph.wants_gradient(inputs[1])) {
      tensors.x = saved_operand(emitter, inputs[0], x_rounded_);
      const Emitter::Target dw = emitter.gradient_target(inputs[1]);
      emitter.call([&] { write(Direction::backward_weight, tensors, dw); });
    }
    if (!graph.wants_gradient(inputs[0])) return;
    tensors.w = saved_operand(emitter, inputs[1], w_rounded_);
    emitter.assign_gradient(inputs[0], [&](const Tensor& dx) {
      emitter.call([&] { write(Direction::backward_data, tensors, {dx, /*accumulate=*/false}); });
    });
  }

 private:
  // Runs one direction by the algorithm that the policy chooses for this map. If the problem's type
  // differs from that of the result, the result is computed in the problem's type, and converted.
  void write(Direction direction, const SparseConvTensors& tensors,
             const Emitter::Target& to) const {
    const Device device = to.tensor.device();
    const bool rounds = problem_.dtype != to.tensor.dtype();
    Operands operands = sparse_conv_operands(direction, tensors);
    operands.out[0] = rounds ? Tensor::empty(to.tensor.shape(), problem_.dtype, device) : to.tensor;
    operands.accumulate = to.accumulate && !rounds;
    execute(select_algorithm(params_.policy.of(direction), problem_, direction, device,
                             WeightUse::once, params_.layer),
            problem_, direction, operands);
    if (!rounds) return;
    const Tensor& sum = operands.out[0].values;
    if (to.accumulate) return accumulate(to.tensor, sum.to(to.tensor.dtype()));
    convert_kernel.get(device)(sum, to.tensor);
  }

  SharedMap map_;
  SparseConvParams params_;
  bool has_bias_;
  SparseConvProblem problem_;
  Slot x_rounded_ = kNoSlot, w_rounded_ = kNoSlot;
};

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
  return apply(std::make_unique<SparseConvOp>(map, params, b.defined()), {x, w, b});
}

}  // namespace convscope
