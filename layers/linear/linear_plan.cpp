// SPDX-License-Identifier: Apache-2.0
// linear_plan.cpp: the linear layer in a planned step: the products that linear() and its closure
// compute, with a ReLU behind it done in the same call. On devices with kernels of their own for it
// (linear_fused.h) one call each way, the last layer with the loss inside.
#include <array>

#include "framework/ops/accumulate.h"
#include "framework/ops/elementwise.h"
#include "framework/ops/gemm/matmul.h"
#include "framework/ops/reduce.h"
#include "layers/dispatch/direction.h"
#include "layers/linear/linear.h"
#include "layers/linear/linear_fused.h"
#include "layers/plan/activation_op.h"
#include "layers/plan/loss_op.h"
#include "layers/plan/operation_op.h"

namespace convscope {
namespace {

std::array<LinearFused, kDeviceTypeCount>& fused_table() {
  static std::array<LinearFused, kDeviceTypeCount> table;
  return table;
}

using WorkspaceBytes = std::size_t (*)(const Shape& x, const Shape& w);

// Inputs: x, w, and b if there is one, as those of Conv2dOp.
class LinearOp final : public PlanOp {
 public:
  // tf32: products may round their factors; the fused kernels do not.
  LinearOp(bool has_bias, bool tf32) : has_bias_(has_bias), tf32_(tf32) {}
  std::string text() const override {
    return cat("linear", relu_ ? " + relu" : "", loss_ ? " + softmax_cross_entropy" : "");
  }

  std::vector<RanKernel> kernels(const PlanGraph& graph) const override {
    const std::string kernel = loss_ ? "linear with the loss" : "linear";
    std::vector<RanKernel> out{{layer, Direction::forward, kernel}};
    if (graph.wants_gradient(x())) out.push_back({layer, Direction::backward_data, kernel});
    if (graph.wants_gradient(weight())) out.push_back({layer, Direction::backward_weight, kernel});
    return out;
  }

  bool absorb(const PlanGraph& graph, PlanOp& next) override {
    if (relu_ || loss_) return false;
    if (is_relu(next)) return relu_ = true;
    const LinearLoss& fused = linear_fused(graph.device()).loss;
    if (dynamic_cast<LossOp*>(&next) == nullptr || fused.run == nullptr) return false;
    if (fused.supports != nullptr && !fused.supports(graph.shape(x()), graph.shape(weight()))) {
      return false;
    }
    logits_ = output;
    return loss_ = true;
  }

  LinearParts parts() const {
    return LinearParts{x(), weight(), has_bias_ ? bias() : kNoValue, relu_, logits_};
  }

  void forward(PlanBuilder& builder) override {
    const LinearFused& fused = linear_fused(builder.device());
    if (loss_) return forward_with_loss(builder, fused.loss);
    if (fused.forward.run != nullptr) return forward_fused(builder, fused.forward);
    const Device device = builder.device();
    const MatmulArguments product{.a = builder.value(x()),
                                  .b = builder.value(weight()),
                                  .c = builder.value(output),
                                  .transpose_b = Transpose::yes,
                                  .accumulate = has_bias_,
                                  .tf32 = tf32_};
    builder.call([product, device, b = bias_value(builder), relu = relu_] {
      if (b.defined()) fill_rows_kernel.get(device)(b, product.c);
      matmul_kernel.get(device)(product);
      if (relu) unary_kernel.get(device)(UnaryOp::relu, product.c, product.c);
    });
  }

  void backward(PlanBuilder& builder) override {
    const ValueId y = loss_ ? logits_ : output;  // whose gradient is there
    const LinearBackward& fused = linear_fused(builder.device()).backward;
    if (fused.run != nullptr) return backward_fused(builder, fused, y);
    if (relu_) emit_relu_gradient(builder, y);
    const Device device = builder.device();
    if (wants_bias(builder)) {
      const PlanBuilder::Target db = builder.gradient_target(bias());
      const Slot part = builder.slot(builder.shape(bias()), DType::f32);
      builder.call([dy = builder.gradient(y), db, part = builder.use(part), device] {
        sum_kernel.get(device)(dy, 1u, db.accumulate ? part : db.tensor);
        if (db.accumulate) accumulate_kernel.get(device)(db.tensor, part);
      });
    }
    if (builder.wants_gradient(weight())) {
      const PlanBuilder::Target dw = builder.gradient_target(weight());
      emit(builder, {.a = builder.gradient(y),
                     .b = builder.value(x()),
                     .c = dw.tensor,
                     .transpose_a = Transpose::yes,
                     .accumulate = dw.accumulate,
                     .tf32 = tf32_});
    }
    if (builder.wants_gradient(x())) {
      const PlanBuilder::Target dx = builder.gradient_target(x());
      emit(builder, {.a = builder.gradient(y),
                     .b = builder.value(weight()),
                     .c = dx.tensor,
                     .accumulate = dx.accumulate,
                     .tf32 = tf32_});
    }
  }

 private:
  ValueId x() const { return inputs[0]; }
  ValueId weight() const { return inputs[1]; }
  ValueId bias() const { return inputs[2]; }
  Tensor bias_value(PlanBuilder& builder) const {
    return has_bias_ ? builder.value(bias()) : Tensor();
  }
  bool wants_bias(const PlanBuilder& builder) const {
    return has_bias_ && builder.wants_gradient(bias());
  }

  static void emit(PlanBuilder& builder, const MatmulArguments& product) {
    builder.call([run = matmul_kernel.get(builder.device()), product] { run(product); });
  }

  void* workspace(PlanBuilder& builder, WorkspaceBytes bytes) const {
    if (bytes == nullptr) return nullptr;
    return builder.workspace(bytes(builder.shape(x()), builder.shape(weight())));
  }

  void forward_fused(PlanBuilder& builder, const LinearForward& fused) const {
    const LinearForwardArgs args{.x = builder.value(x()),
                                 .w = builder.value(weight()),
                                 .b = bias_value(builder),
                                 .relu = relu_,
                                 .y = builder.value(output),
                                 .workspace = workspace(builder, fused.workspace_bytes)};
    builder.call([run = fused.run, args] { run(args); });
  }

  // The gradient of the logits comes with the loss: it is written by the forward.
  void forward_with_loss(PlanBuilder& builder, const LinearLoss& fused) const {
    const LinearLossArgs args{.x = builder.value(x()),
                              .w = builder.value(weight()),
                              .b = bias_value(builder),
                              .labels = builder.labels(),
                              .dlogits = builder.wants_gradient(logits_)
                                             ? builder.gradient_target(logits_).tensor
                                             : Tensor(),
                              .loss = builder.loss(),
                              .correct = builder.correct(),
                              .workspace = workspace(builder, fused.workspace_bytes)};
    builder.call([run = fused.run, args] { run(args); });
  }

  void backward_fused(PlanBuilder& builder, const LinearBackward& fused, ValueId y) const {
    LinearBackwardArgs args{.x = builder.value(x()),
                            .w = builder.value(weight()),
                            .y = relu_ ? builder.value(y) : Tensor(),
                            .dy = builder.gradient(y)};
    if (builder.wants_gradient(weight())) {
      const PlanBuilder::Target dw = builder.gradient_target(weight());
      args.dw = dw.tensor;
      args.accumulate_dw = dw.accumulate;
    }
    if (wants_bias(builder)) {
      const PlanBuilder::Target db = builder.gradient_target(bias());
      args.db = db.tensor;
      args.accumulate_db = db.accumulate;
    }
    if (builder.wants_gradient(x())) {
      const PlanBuilder::Target dx = builder.gradient_target(x());
      args.dx = dx.tensor;
      args.accumulate_dx = dx.accumulate;
    }
    args.workspace = workspace(builder, fused.workspace_bytes);
    builder.call([run = fused.run, args] { run(args); });
  }

  bool has_bias_, tf32_;
  bool relu_ = false;
  bool loss_ = false;          // the loss comes out of the same call
  ValueId logits_ = kNoValue;  // then: the value that this layer alone would give
};

}  // namespace

std::optional<LinearParts> linear_parts(const PlanOp& op) {
  const auto* const linear = dynamic_cast<const LinearOp*>(&op);
  if (linear == nullptr) return std::nullopt;
  return linear->parts();
}

bool register_linear_fused(DeviceType type, const LinearFused& kernels) {
  fused_table()[static_cast<std::size_t>(type)] = kernels;
  return true;
}

const LinearFused& linear_fused(Device device) {
  return fused_table()[static_cast<std::size_t>(device.type)];
}

int Linear::describe(PlanGraph& graph, int x) {
  const Shape shape = output_shape(graph.shape(x));
  // What rounds its factors does so in its own forward().
  if (is_half(factor_type(precision_))) return describe_dynamic(graph, *this, x);
  x = transformed_input(graph, x);
  const ValueId w = transformed_weight(graph, weight_);
  if (x == kNoValue || w == kNoValue) return kNoValue;
  std::vector<ValueId> inputs{x, w};
  if (bias_.defined()) inputs.push_back(graph.parameter(bias_));
  auto op = std::make_unique<LinearOp>(bias_.defined(), precision_ == ComputePrecision::tf32);
  return graph.add(std::move(op), std::move(inputs), shape);
}

}  // namespace convscope
