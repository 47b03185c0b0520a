// SPDX-License-Identifier: Apache-2.0
// linear_plan.cpp: the linear layer in a compiled step. It computes the products of linear() and of
// its backward pass, with a following ReLU in the same call. Devices with fused kernels
// (linear_fused.h) make one call for each direction; the last layer's call includes the loss. A
// pruned layer may compute a direction from the blocks that its mask keeps (linear_blocks.h), with
// the following ReLU and without the loss. With half-precision operands, the tensors are stored as
// f32, and the fused kernels round the operands when they load them.
#include <array>

#include "framework/ops/accumulate.h"
#include "framework/ops/elementwise.h"
#include "framework/ops/gemm/matmul.h"
#include "framework/ops/reduce.h"
#include "layers/dispatch/direction.h"
#include "layers/linear/linear.h"
#include "layers/linear/linear_blocks.h"
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

using WorkspaceBytes = std::size_t (*)(const Shape& x, const Shape& w, DType operand_type);

// Inputs: x, w, and b if there is one, like those of Conv2dOp.
class LinearOp final : public PlanOp {
 public:
  // With tf32, products may round their operands; the fused kernels do not round them.
  LinearOp(bool has_bias, ComputePrecision precision, LinearBlocks blocks)
      : has_bias_(has_bias),
        tf32_(precision == ComputePrecision::tf32),
        operand_type_(factor_type(precision)),
        blocks_(std::move(blocks)) {}
  std::string text() const override {
    std::string out =
        cat("linear", blocks_.run(Direction::forward) ? cat(" ", kernel(Direction::forward)) : "",
            relu_ ? " + relu" : "", loss_ ? " + softmax_cross_entropy" : "",
            is_half(operand_type_) ? cat("; operands in ", name_of(operand_type_)) : "");
    for (const Direction direction : kDirections) {
      if (blocks_.why_dense(direction).empty()) continue;
      out += cat("; ", name_of(direction), " ", kernel(direction), ", dense, because ",
                 blocks_.why_dense(direction));
    }
    return out;
  }

  std::vector<RanKernel> kernels(const Graph& graph) const override {
    std::vector<RanKernel> out;
    const auto add = [&](Direction direction) {
      out.push_back({layer, direction, kernel(direction)});
    };
    add(Direction::forward);
    if (graph.wants_gradient(x())) add(Direction::backward_data);
    if (graph.wants_gradient(weight())) add(Direction::backward_weight);
    return out;
  }

  bool absorb(const Graph& graph, PlanOp& next) override {
    if (relu_ || loss_) return false;
    if (is_relu(next)) return relu_ = true;
    if (blocks_.run(Direction::forward)) return false;
    const LinearLoss& fused = linear_fused(graph.device()).loss;
    if (dynamic_cast<LossOp*>(&next) == nullptr || fused.run == nullptr) return false;
    if (fused.supports != nullptr && !fused.supports(graph.shape(x()), graph.shape(weight()))) {
      return false;
    }
    logits_ = output;
    return loss_ = true;
  }

  LinearParts parts() const {
    return LinearParts{x(),          weight(), has_bias_ ? bias() : kNoValue,
                       relu_,        logits_,  blocks_.sparse(),
                       operand_type_};
  }

  void forward(Emitter& builder) override {
    if (blocks_.run(Direction::forward)) return forward_in_blocks(builder);
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

  void backward(Emitter& builder) override {
    const ValueId y = loss_ ? logits_ : output;  // whose gradient is known
    const LinearBackward& fused = linear_fused(builder.device()).backward;
    const auto is_apart = [&](Direction direction) {  // from what the fused call computes
      return fused.run == nullptr || blocks_.run(direction);
    };
    const bool dw_apart = is_apart(Direction::backward_weight);
    const bool dx_apart = is_apart(Direction::backward_data);
    const bool relu_apart = dw_apart || dx_apart;
    if (relu_ && relu_apart) emit_relu_gradient(builder, y);
    if (wants_bias(builder) && dw_apart) emit_bias_gradient(builder, y);
    if (builder.wants_gradient(weight()) && dw_apart) emit_weight_gradient(builder, y);
    if (builder.wants_gradient(x()) && dx_apart) emit_data_gradient(builder, y);
    if (dw_apart && dx_apart) return;
    LinearBackwardArgs args{.x = builder.value(x()),
                            .w = builder.value(weight()),
                            .y = relu_ && !relu_apart ? builder.value(y) : Tensor(),
                            .dy = builder.gradient(y),
                            .operand_type = operand_type_};
    if (!dw_apart) add_weight_and_bias(builder, args);
    if (!dx_apart) add_data(builder, args);
    if (!args.dw.defined() && !args.db.defined() && !args.dx.defined()) return;
    args.workspace = workspace(builder, fused.workspace_bytes);
    builder.call([run = fused.run, args] { run(args); });
  }

 private:
  ValueId x() const { return inputs[0]; }
  ValueId weight() const { return inputs[1]; }
  ValueId bias() const { return inputs[2]; }
  Tensor bias_value(Emitter& builder) const {
    return has_bias_ ? builder.value(bias()) : Tensor();
  }
  bool wants_bias(const Emitter& builder) const {
    return has_bias_ && builder.wants_gradient(bias());
  }

  std::string kernel(Direction direction) const {
    if (blocks_.run(direction)) return kSparseAlgorithm;
    return loss_ ? "linear with the loss" : "linear";
  }

  void emit_bias_gradient(Emitter& builder, ValueId y) const {
    const Emitter::Target db = builder.gradient_target(bias());
    const Slot part = builder.slot(builder.shape(bias()), DType::f32);
    builder.call(
        [dy = builder.gradient(y), db, part = builder.use(part), device = builder.device()] {
          sum_kernel.get(device)(dy, 1u, db.accumulate ? part : db.tensor);
          if (db.accumulate) accumulate_kernel.get(device)(db.tensor, part);
        });
  }

  void emit_weight_gradient(Emitter& builder, ValueId y) const {
    const Emitter::Target dw = builder.gradient_target(weight());
    const Tensor dy = builder.gradient(y);
    if (blocks_.run(Direction::backward_weight)) {
      return emit_backward_weight(builder, blocks_.work(Direction::backward_weight),
                                  builder.value(x()), dy, dw);
    }
    emit(builder, {.a = dy,
                   .b = builder.value(x()),
                   .c = dw.tensor,
                   .transpose_a = Transpose::yes,
                   .accumulate = dw.accumulate,
                   .tf32 = tf32_});
  }

  void emit_data_gradient(Emitter& builder, ValueId y) const {
    if (blocks_.run(Direction::backward_data)) {
      return builder.assign_gradient(x(), [&](const Tensor& dx) {
        emit_backward_data(builder, blocks_.work(Direction::backward_data), builder.gradient(y),
                           builder.value(weight()), dx);
      });
    }
    const Emitter::Target dx = builder.gradient_target(x());
    emit(builder, {.a = builder.gradient(y),
                   .b = builder.value(weight()),
                   .c = dx.tensor,
                   .accumulate = dx.accumulate,
                   .tf32 = tf32_});
  }

  // In inference the lists of blocks are made only once, in the prologue.
  void forward_in_blocks(Emitter& builder) const {
    const Conv2dWork work = blocks_.work(Direction::forward);
    Slot prepared = kNoSlot;
    if (!builder.training()) {
      builder.prologue(
          [&] { prepared = emit_preparation(builder, work, builder.value(weight())); });
    }
    const bool in_step = prepared == kNoSlot;
    emit_forward(builder, work,
                 {.x = builder.value(x()),
                  .w = in_step ? builder.value(weight()) : Tensor(),
                  .b = bias_value(builder),
                  .prepared = in_step ? Tensor() : builder.use(prepared),
                  .y = builder.value(output)},
                 {.relu = relu_});
  }

  static void emit(Emitter& builder, const MatmulArguments& product) {
    builder.call([run = matmul_kernel.get(builder.device()), product] { run(product); });
  }

  void* workspace(Emitter& builder, WorkspaceBytes bytes) const {
    if (bytes == nullptr) return nullptr;
    return builder.workspace(bytes(builder.shape(x()), builder.shape(weight()), operand_type_));
  }

  void forward_fused(Emitter& builder, const LinearForward& fused) const {
    const LinearForwardArgs args{.x = builder.value(x()),
                                 .w = builder.value(weight()),
                                 .b = bias_value(builder),
                                 .relu = relu_,
                                 .y = builder.value(output),
                                 .workspace = workspace(builder, fused.workspace_bytes),
                                 .operand_type = operand_type_};
    builder.call([run = fused.run, args] { run(args); });
  }

  // The forward pass writes the gradient of the logits together with the loss.
  void forward_with_loss(Emitter& builder, const LinearLoss& fused) const {
    LinearLossArgs args{.x = builder.value(x()),
                        .w = builder.value(weight()),
                        .b = bias_value(builder),
                        .labels = builder.labels(),
                        .dlogits = builder.wants_gradient(logits_)
                                       ? builder.gradient_target(logits_).tensor
                                       : Tensor(),
                        .loss = builder.loss(),
                        .correct = builder.correct(),
                        .workspace = workspace(builder, fused.workspace_bytes),
                        .operand_type = operand_type_};
    builder.call([run = fused.run, args, scale = builder.loss_scale()]() mutable {
      args.loss_scale = *scale;
      run(args);
    });
  }

  void add_weight_and_bias(Emitter& builder, LinearBackwardArgs& args) const {
    if (builder.wants_gradient(weight())) {
      const Emitter::Target dw = builder.gradient_target(weight());
      args.dw = dw.tensor;
      args.accumulate_dw = dw.accumulate;
    }
    if (wants_bias(builder)) {
      const Emitter::Target db = builder.gradient_target(bias());
      args.db = db.tensor;
      args.accumulate_db = db.accumulate;
    }
  }

  void add_data(Emitter& builder, LinearBackwardArgs& args) const {
    if (!builder.wants_gradient(x())) return;
    const Emitter::Target dx = builder.gradient_target(x());
    args.dx = dx.tensor;
    args.accumulate_dx = dx.accumulate;
  }

  bool has_bias_, tf32_;
  DType operand_type_;
  LinearBlocks blocks_;
  bool relu_ = false;
  bool loss_ = false;          // the same call computes the loss
  ValueId logits_ = kNoValue;  // then: the value that this layer would compute
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

int Linear::describe(Graph& graph, int x) {
  const Shape shape = output_shape(graph.shape(x));
  const bool half = is_half(factor_type(precision_));
  // Only the fused kernels round operands.
  if (half && linear_fused(graph.device()).forward.run == nullptr) {
    return describe_dynamic(graph, *this, x);
  }
  x = transformed_input(graph, x);
  const ValueId w = transformed_weight(graph, weight_);
  if (x == kNoValue || w == kNoValue) return kNoValue;
  std::vector<ValueId> inputs{x, w};
  if (bias_.defined()) inputs.push_back(graph.parameter(bias_));
  const bool tf32 = precision_ == ComputePrecision::tf32;
  LinearBlocks blocks;
  if (sparse_ && !half) {
    blocks = LinearBlocks(graph, sparse_, x, w, tf32 ? MathMode::tf32 : MathMode::f32);
  }
  auto op = std::make_unique<LinearOp>(bias_.defined(), precision_, std::move(blocks));
  return graph.add(std::move(op), std::move(inputs), shape);
}

}  // namespace convscope
