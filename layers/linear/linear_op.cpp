// SPDX-License-Identifier: Apache-2.0
// linear_op.cpp: the linear layer as an operation. In a compiled step a following ReLU is in the
// same call. Devices with fused kernels (linear_fused.h) make one call for each direction. A pruned
// layer may compute a direction from the blocks that its mask keeps (linear_blocks.h), with the
// following ReLU. With half-precision operands, the tensors are stored as f32, and the fused
// kernels round the operands when they load them.
#include <array>

#include "framework/graph/apply.h"
#include "framework/graph/rounded_operand.h"
#include "framework/ops/elementwise.h"
#include "framework/ops/gemm/matmul.h"
#include "framework/ops/reduce.h"
#include "layers/dispatch/direction.h"
#include "layers/linear/linear.h"
#include "layers/linear/linear_blocks.h"
#include "layers/linear/linear_fused.h"
#include "layers/plan/fused_relu.h"

namespace convscope {
namespace {

std::array<LinearFused, kDeviceTypeCount>& fused_table() {
  static std::array<LinearFused, kDeviceTypeCount> table;
  return table;
}

using WorkspaceBytes = std::size_t (*)(const Shape& x, const Shape& w, DType operand_type);

// Inputs: x, w, and b if there is one, like those of Conv2dOp.
class LinearOp final : public Operation {
 public:
  static constexpr std::string_view kKind = "linear";
  // With tf32, products may round their operands; the fused kernels do not round them.
  LinearOp(bool has_bias, ComputePrecision precision)
      : Operation("linear"),
        has_bias_(has_bias),
        precision_(precision),
        tf32_(precision == ComputePrecision::tf32),
        operand_type_(factor_type(precision)) {}

  TensorDesc bind(Graph& graph) override {
    const TensorDesc &x = graph.desc(inputs[0]), &w = graph.desc(inputs[1]);
    CONVSCOPE_CHECK(x.shape.rank() == 2 && w.shape.rank() == 2 && x.dtype == w.dtype &&
                        (x.dtype == DType::f32 || x.dtype == DType::f64),
                    "linear", "expected x [N,I] and w [O,I], both of type f32 or both f64, got ",
                    x.str(), " and ", w.str());
    CONVSCOPE_CHECK(x.shape[1] == w.shape[1], "linear", "expected x with ", w.shape[1],
                    " features because w is ", w.shape, ", got x ", x.shape);
    if (has_bias_) {
      const TensorDesc& b = graph.desc(inputs[2]);
      CONVSCOPE_CHECK(b.shape == Shape{w.shape[0]} && b.dtype == x.dtype, "linear", "expected b [",
                      w.shape[0], "] of the type of x because w is ", w.shape, ", got ", b.str());
    }
    CONVSCOPE_CHECK(precision_ == ComputePrecision::f32 || x.dtype == DType::f32, "linear",
                    "expected x of type f32 because the product is in ", name_of(precision_),
                    ", got ", x.str());
    const bool half = is_half(operand_type_);
    // In a compiled step only the fused kernels round operands.
    if (half && !graph.is_eager() && linear_fused(graph.device()).forward.run == nullptr) {
      throw SymbolicValue();
    }
    if (w.kept && !half) {
      blocks_ = LinearBlocks(graph, inputs[0], inputs[1], tf32_ ? MathMode::tf32 : MathMode::f32);
    }
    return {{x.shape[0], w.shape[0]}, x.dtype};
  }

  std::string text() const override {
    std::string out =
        cat("linear", blocks_.run(Direction::forward) ? cat(" ", kernel(Direction::forward)) : "",
            relu_ ? " + relu" : "",
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
      const Shape &in = graph.shape(x()), &w = graph.shape(weight());
      out.push_back({.layer = layer,
                     .direction = direction,
                     .kernel = kernel(direction),
                     .flops = 2.0 * static_cast<double>(in[0] * w.numel())});
    };
    add(Direction::forward);
    if (graph.wants_gradient(x())) add(Direction::backward_data);
    if (graph.wants_gradient(weight())) add(Direction::backward_weight);
    return out;
  }

  bool absorb_relu() {
    if (relu_) return false;
    return relu_ = true;
  }

  LinearParts parts() const {
    return LinearParts{.x = x(),
                       .weight = weight(),
                       .bias = has_bias_ ? bias() : kNoValue,
                       .relu = relu_,
                       .sparse = blocks_.sparse(),
                       .forward_in_blocks = blocks_.run(Direction::forward),
                       .operand_type = operand_type_};
  }

  void forward(Emitter& emitter) override {
    if (blocks_.run(Direction::forward)) return forward_in_blocks(emitter);
    const LinearFused& fused = fused_kernels(emitter);
    if (fused.forward.run != nullptr) return forward_fused(emitter, fused.forward);
    const Device device = emitter.device();
    const MatmulArguments product{.a = operand(emitter, emitter.value(x()), x_rounded_),
                                  .b = operand(emitter, emitter.value(weight()), w_rounded_),
                                  .c = emitter.value(output()),
                                  .transpose_b = Transpose::yes,
                                  .accumulate = has_bias_,
                                  .tf32 = tf32_};
    emitter.call([product, device, b = bias_value(emitter), relu = relu_] {
      if (b.defined()) fill_rows_kernel.get(device)(b, product.c);
      matmul_kernel.get(device)(product);
      if (relu) unary_kernel.get(device)(UnaryOp::relu, product.c, product.c);
    });
  }

  void backward(Emitter& emitter) override {
    const ValueId y = output();
    const LinearBackward& fused = fused_kernels(emitter).backward;
    const auto is_apart = [&](Direction direction) {  // from what the fused call computes
      return fused.run == nullptr || blocks_.run(direction);
    };
    const bool dw_apart = is_apart(Direction::backward_weight);
    const bool dx_apart = is_apart(Direction::backward_data);
    const bool relu_apart = dw_apart || dx_apart;
    if (relu_ && relu_apart) emit_relu_gradient(emitter, y);
    if (wants_bias(emitter) && dw_apart) emit_bias_gradient(emitter, y);
    Slot dy_rounded = kNoSlot;
    if (emitter.graph().wants_gradient(weight()) && dw_apart) {
      emit_weight_gradient(emitter, y, dy_rounded);
    }
    if (emitter.graph().wants_gradient(x()) && dx_apart) emit_data_gradient(emitter, y, dy_rounded);
    if (dw_apart && dx_apart) return;
    LinearBackwardArgs args{.x = emitter.value(x()),
                            .w = emitter.value(weight()),
                            .y = relu_ && !relu_apart ? emitter.value(y) : Tensor(),
                            .dy = emitter.gradient(y),
                            .operand_type = operand_type_};
    if (!dw_apart) add_weight_and_bias(emitter, args);
    if (!dx_apart) add_data(emitter, args);
    if (!args.dw.defined() && !args.db.defined() && !args.dx.defined()) return;
    args.workspace = workspace(emitter, fused.workspace_bytes);
    emitter.call([run = fused.run, args] { run(args); });
  }

 private:
  ValueId x() const { return inputs[0]; }
  ValueId weight() const { return inputs[1]; }
  ValueId bias() const { return inputs[2]; }
  Tensor bias_value(Emitter& emitter) const { return has_bias_ ? emitter.value(bias()) : Tensor(); }
  bool wants_bias(const Emitter& emitter) const {
    return has_bias_ && emitter.graph().wants_gradient(bias());
  }

  // Eager calls have no fused kernels, and round their operands before the product.
  static const LinearFused& fused_kernels(const Emitter& emitter) {
    static const LinearFused kNone;
    return emitter.is_eager() ? kNone : linear_fused(emitter.device());
  }
  Tensor operand(Emitter& emitter, const Tensor& from, Slot& slot) const {
    const bool half = is_half(operand_type_) && emitter.is_eager();
    return half ? rounded_operand(emitter, from, operand_type_, slot) : from;
  }

  std::string kernel(Direction direction) const {
    return blocks_.run(direction) ? kSparseAlgorithm : "linear";
  }

  void emit_bias_gradient(Emitter& emitter, ValueId y) const {
    emitter.assign_gradient(bias(), [&](const Tensor& db) {
      emitter.call([run = sum_kernel.get(emitter.device()), dy = emitter.gradient(y), db] {
        run(dy, 1u, db);
      });
    });
  }

  void emit_weight_gradient(Emitter& emitter, ValueId y, Slot& dy_rounded) const {
    if (blocks_.run(Direction::backward_weight)) {
      Operands operands;
      operands.in = {operand_of(emitter, x()), emitter.gradient(y)};
      return convscope::emit_weight_gradient(emitter, blocks_.work(Direction::backward_weight),
                                             operands, weight());
    }
    const Emitter::Target dw = emitter.gradient_target(weight());
    emit(emitter, {.a = operand(emitter, emitter.gradient(y), dy_rounded),
                   .b = saved_operand(emitter, x(), x_rounded_),
                   .c = dw.tensor,
                   .transpose_a = Transpose::yes,
                   .accumulate = dw.accumulate,
                   .tf32 = tf32_});
  }

  void emit_data_gradient(Emitter& emitter, ValueId y, Slot& dy_rounded) const {
    if (blocks_.run(Direction::backward_data)) {
      const Conv2dWork work = blocks_.work(Direction::backward_data);
      OperandViews views;
      Operands operands;
      operands.in[1] = weight_operand(emitter, work, emitter.value(weight()), views);
      operands.in[0] = emitter.gradient(y);
      return emitter.assign_gradient(x(), [&](const Tensor& dx) {
        operands.out[0] = dx;
        emit_call(emitter, work.choice, work.problem, work.direction, operands, {}, views);
      });
    }
    const Emitter::Target dx = emitter.gradient_target(x());
    emit(emitter, {.a = operand(emitter, emitter.gradient(y), dy_rounded),
                   .b = saved_operand(emitter, weight(), w_rounded_),
                   .c = dx.tensor,
                   .accumulate = dx.accumulate,
                   .tf32 = tf32_});
  }

  // In inference the lists of blocks are made only once, in the prologue.
  void forward_in_blocks(Emitter& emitter) const {
    const Conv2dWork work = blocks_.work(Direction::forward);
    Slot prepared = kNoSlot;
    if (!emitter.graph().training()) {
      emitter.prologue(
          [&] { prepared = emit_preparation(emitter, work, emitter.value(weight())); });
    }
    OperandViews views;
    Operands operands{.in = {}, .out = {}, .epilogue = {.relu = relu_}};
    if (prepared == kNoSlot) {
      operands.in[1] = weight_operand(emitter, work, emitter.value(weight()), views);
    }
    operands.in[0] = operand_of(emitter, x());
    operands.in[2] = bias_value(emitter);
    operands.out[0] = emitter.value(output());
    emit_call(emitter, work.choice, work.problem, work.direction, operands,
              prepared == kNoSlot ? Tensor() : emitter.use(prepared), views);
  }

  static void emit(Emitter& emitter, const MatmulArguments& product) {
    emitter.call([run = matmul_kernel.get(emitter.device()), product] { run(product); });
  }

  void* workspace(Emitter& emitter, WorkspaceBytes bytes) const {
    if (bytes == nullptr) return nullptr;
    return emitter.workspace(
        bytes(emitter.graph().shape(x()), emitter.graph().shape(weight()), operand_type_));
  }

  void forward_fused(Emitter& emitter, const LinearForward& fused) const {
    const LinearForwardArgs args{.x = emitter.value(x()),
                                 .w = emitter.value(weight()),
                                 .b = bias_value(emitter),
                                 .relu = relu_,
                                 .y = emitter.value(output()),
                                 .workspace = workspace(emitter, fused.workspace_bytes),
                                 .operand_type = operand_type_};
    emitter.call([run = fused.run, args] { run(args); });
  }

  void add_weight_and_bias(Emitter& emitter, LinearBackwardArgs& args) const {
    if (emitter.graph().wants_gradient(weight())) {
      const Emitter::Target dw = emitter.gradient_target(weight());
      args.dw = dw.tensor;
      args.accumulate_dw = dw.accumulate;
    }
    if (wants_bias(emitter)) {
      const Emitter::Target db = emitter.gradient_target(bias());
      args.db = db.tensor;
      args.accumulate_db = db.accumulate;
    }
  }

  void add_data(Emitter& emitter, LinearBackwardArgs& args) const {
    if (!emitter.graph().wants_gradient(x())) return;
    const Emitter::Target dx = emitter.gradient_target(x());
    args.dx = dx.tensor;
    args.accumulate_dx = dx.accumulate;
  }

  bool has_bias_;
  ComputePrecision precision_;
  bool tf32_;
  DType operand_type_;
  LinearBlocks blocks_;
  Slot x_rounded_ = kNoSlot, w_rounded_ = kNoSlot;  // eager, in half precision
  bool relu_ = false;
};

}  // namespace

std::optional<LinearParts> linear_parts(const Operation& op) {
  const auto* const linear = as<LinearOp>(&op);
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

Variable linear(const Variable& x, const Variable& w, const Variable& b,
                ComputePrecision precision) {
  return apply(std::make_unique<LinearOp>(b.defined(), precision), {x, w, b});
}

namespace {

const bool registered =
    register_fusions("fuse", {{"linear", "relu", [](const Graph&, Operation& first, Operation&) {
                                 return static_cast<LinearOp&>(first).absorb_relu();
                               }}});

}  // namespace

}  // namespace convscope
