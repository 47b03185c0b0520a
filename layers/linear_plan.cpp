// SPDX-License-Identifier: Apache-2.0
// linear_plan.cpp: the linear layer in a planned step: the products that linear() and its closure
// compute, with a ReLU behind it done in the same call.
#include "framework/ops/accumulate.h"
#include "framework/ops/elementwise.h"
#include "framework/ops/matmul.h"
#include "framework/ops/reduce.h"
#include "layers/linear.h"
#include "layers/plan/activation_op.h"

namespace convscope {
namespace {

class LinearOp final : public PlanOp {
 public:
  LinearOp(Variable weight, Variable bias) : weight_(std::move(weight)), bias_(std::move(bias)) {}
  std::string text() const override { return relu_ ? "linear + relu" : "linear"; }

  bool absorb(const PlanGraph&, PlanOp& next) override {
    if (relu_ || !is_relu(next)) return false;
    return relu_ = true;
  }

  void forward(PlanBuilder& builder) override {
    const MatmulArguments product{.a = builder.value(inputs[0]),
                                  .b = weight_.value(),
                                  .c = builder.value(output),
                                  .transpose_b = Transpose::yes,
                                  .accumulate = bias_.defined()};
    builder.call([product, b = bias_.defined() ? bias_.value() : Tensor(), relu = relu_] {
      const Device cpu{};
      if (b.defined()) fill_rows_kernel.get(cpu)(b, product.c);
      matmul_kernel.get(cpu)(product);
      if (relu) unary_kernel.get(cpu)(UnaryOp::relu, product.c, product.c);
    });
  }

  void backward(PlanBuilder& builder) override {
    const Device cpu{};
    if (relu_) emit_relu_gradient(builder, output);
    if (bias_.defined() && bias_.requires_grad()) {
      const PlanBuilder::Target db = builder.parameter_gradient(bias_);
      const Slot part = builder.slot(bias_.shape(), DType::f32);
      builder.call([dy = builder.gradient(output), db, part = builder.use(part), cpu] {
        sum_kernel.get(cpu)(dy, 1u, db.accumulate ? part : db.tensor);
        if (db.accumulate) accumulate_kernel.get(cpu)(db.tensor, part);
      });
    }
    if (weight_.requires_grad()) {
      const PlanBuilder::Target dw = builder.parameter_gradient(weight_);
      emit(builder, {.a = builder.gradient(output),
                     .b = builder.value(inputs[0]),
                     .c = dw.tensor,
                     .transpose_a = Transpose::yes,
                     .accumulate = dw.accumulate});
    }
    if (builder.wants_gradient(inputs[0])) {
      const PlanBuilder::Target dx = builder.gradient_target(inputs[0]);
      emit(builder, {.a = builder.gradient(output),
                     .b = weight_.value(),
                     .c = dx.tensor,
                     .accumulate = dx.accumulate});
    }
  }

 private:
  static void emit(PlanBuilder& builder, const MatmulArguments& product) {
    builder.call([product] { matmul_kernel.get(Device{})(product); });
  }
  Variable weight_, bias_;
  bool relu_ = false;
};

}  // namespace

int Linear::describe(PlanGraph& graph, int x) {
  if (has_transforms()) return graph.refuse("its weight or input passes through a transform");
  const bool trains = weight_.requires_grad() || (bias_.defined() && bias_.requires_grad());
  return graph.add(std::make_unique<LinearOp>(weight_, bias_), {x}, output_shape(graph.shape(x)),
                   trains);
}

}  // namespace convscope
