// SPDX-License-Identifier: Apache-2.0
// matmul.cpp: products of matrices. f32 uses the project's register-tiled product
// (framework/ops/gemm/gemm.h) or, if the caller names it, Eigen's product; f64 is for gradient
// checks.
#include "framework/ops/gemm/matmul.h"

#include "framework/graph/apply.h"

namespace convscope {

constinit KernelSlot<void(const MatmulArguments&)> matmul_kernel{"matmul"};
constinit KernelSlot<void(const Tensor&, const Tensor&)> fill_rows_kernel{"linear"};

namespace {

constexpr Transpose flip(Transpose t) {
  return t == Transpose::no ? Transpose::yes : Transpose::no;
}

// c = op(a) op(b). Inputs: a and b.
class MatmulOperation final : public Operation {
 public:
  MatmulOperation(Transpose transpose_a, Transpose transpose_b, MatmulEngine engine)
      : Operation("matmul"), ta_(transpose_a), tb_(transpose_b), engine_(engine) {}

  TensorDesc bind(Graph& graph) override {
    check_real_inputs(graph, *this);
    const Shape &a = graph.shape(inputs[0]), &b = graph.shape(inputs[1]);
    CONVSCOPE_CHECK(a.rank() == 2 && b.rank() == 2, "matmul",
                    "expected two matrices (rank 2), got ", a, " and ", b);
    const bool ta = ta_ == Transpose::yes, tb = tb_ == Transpose::yes;
    CONVSCOPE_CHECK(a[ta ? 0 : 1] == b[tb ? 1 : 0], "matmul", "expected as many columns of ",
                    ta ? "a^T" : "a", " as rows of ", tb ? "b^T" : "b", ", got ", a, " and ", b);
    return {{a[ta ? 1 : 0], b[tb ? 0 : 1]}, graph.dtype(inputs[0])};
  }
  void forward(Emitter& emitter) override {
    emit(emitter, emitter.value(inputs[0]), ta_, emitter.value(inputs[1]), tb_,
         {emitter.value(output()), /*accumulate=*/false});
  }
  void backward(Emitter& emitter) override {
    const Graph& graph = emitter.graph();
    if (graph.wants_gradient(inputs[0])) {  // d op(a) = dc op(b)^T; transposed if a was transposed
      const Tensor b = emitter.value(inputs[1]), dc = emitter.gradient(output());
      const Emitter::Target da = emitter.gradient_target(inputs[0]);
      if (ta_ == Transpose::no) {
        emit(emitter, dc, Transpose::no, b, flip(tb_), da);
      } else {
        emit(emitter, b, tb_, dc, Transpose::yes, da);
      }
    }
    if (graph.wants_gradient(inputs[1])) {  // d op(b) = op(a)^T dc
      const Tensor a = emitter.value(inputs[0]), dc = emitter.gradient(output());
      const Emitter::Target db = emitter.gradient_target(inputs[1]);
      if (tb_ == Transpose::no) {
        emit(emitter, a, flip(ta_), dc, Transpose::no, db);
      } else {
        emit(emitter, dc, Transpose::yes, a, ta_, db);
      }
    }
  }

 private:
  void emit(Emitter& emitter, const Tensor& a, Transpose ta, const Tensor& b, Transpose tb,
            const Emitter::Target& to) const {
    emitter.call([run = matmul_kernel.get(emitter.device()),
                  product = MatmulArguments{.a = a,
                                            .b = b,
                                            .c = to.tensor,
                                            .transpose_a = ta,
                                            .transpose_b = tb,
                                            .accumulate = to.accumulate,
                                            .engine = engine_}] { run(product); });
  }

  Transpose ta_, tb_;
  MatmulEngine engine_;
};

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b, Transpose transpose_a, Transpose transpose_b,
              MatmulEngine engine) {
  return matmul(Variable(a), Variable(b), transpose_a, transpose_b, engine).value();
}

Variable matmul(const Variable& a, const Variable& b, Transpose transpose_a, Transpose transpose_b,
                MatmulEngine engine) {
  return apply(std::make_unique<MatmulOperation>(transpose_a, transpose_b, engine), {a, b});
}

}  // namespace convscope
