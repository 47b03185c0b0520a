// SPDX-License-Identifier: Apache-2.0
// elementwise.cpp: element-wise operations with NumPy's broadcasting.
#include "framework/ops/elementwise.h"

#include <algorithm>

#include "framework/graph/simple_operation.h"
#include "framework/ops/reduce.h"

namespace convscope {

constinit KernelSlot<void(BinaryOp, const Tensor&, const Tensor&, const Tensor&)> binary_kernel{
    "elementwise"};
constinit KernelSlot<void(UnaryOp, const Tensor&, const Tensor&)> unary_kernel{"elementwise"};
constinit KernelSlot<void(GradientOp, const Tensor&, const Tensor&, const Tensor&)> gradient_kernel{
    "elementwise"};
constinit KernelSlot<void(double, const Tensor&, const Tensor&)> scale_kernel{"scale"};

namespace {

const char* name_of(BinaryOp op) {
  constexpr const char* kNames[] = {"add", "sub", "mul", "div"};
  return kNames[static_cast<int>(op)];
}

const char* name_of(UnaryOp op) {
  constexpr const char* kNames[] = {"neg", "exp", "log", "sqrt", "relu", "tanh", "sigmoid"};
  return kNames[static_cast<int>(op)];
}

void check_real(const Tensor& x, const char* operation) {
  CONVSCOPE_CHECK(x.defined() && (x.dtype() == DType::f32 || x.dtype() == DType::f64), operation,
                  "expected x of type f32 or f64, got ", x.str());
}

// Returns the axes along which a tensor of shape `part` is repeated to get `whole`: bit i = axis i.
unsigned repeated_axes(const Shape& whole, const Shape& part) {
  unsigned mask = 0;
  for (int axis = 0; axis < whole.rank(); ++axis) {
    const int own = axis - (whole.rank() - part.rank());
    if (own < 0 || (part[own] == 1 && whole[axis] != 1)) mask |= 1u << axis;
  }
  return mask;
}

}  // namespace

Shape broadcast_shape(const Shape& a, const Shape& b, const char* operation) {
  const int rank = std::max(a.rank(), b.rank());
  Shape y;
  for (int axis = 0; axis < rank; ++axis) {
    const int axis_a = axis - (rank - a.rank());
    const int axis_b = axis - (rank - b.rank());
    const std::int64_t size_a = axis_a < 0 ? 1 : a[axis_a];
    const std::int64_t size_b = axis_b < 0 ? 1 : b[axis_b];
    CONVSCOPE_CHECK(size_a == size_b || size_a == 1 || size_b == 1, operation,
                    "expected shapes that are equal or 1 at each axis, counted from the last, got ",
                    a, " and ", b);
    y.push_back(size_a == 1 ? size_b : size_a);
  }
  return y;
}

Tensor elementwise(BinaryOp op, const Tensor& a, const Tensor& b) {
  check_real(a, name_of(op));
  CONVSCOPE_CHECK(b.defined() && a.dtype() == b.dtype() && a.device() == b.device(), name_of(op),
                  "expected two operands of one type on one device, got ", a.str(), " and ",
                  b.str());
  Tensor y =
      Tensor::empty(broadcast_shape(a.shape(), b.shape(), name_of(op)), a.dtype(), a.device());
  if (y.numel() > 0) binary_kernel.get(a.device())(op, a, b, y);
  return y;
}

Tensor elementwise(UnaryOp op, const Tensor& x) {
  check_real(x, name_of(op));
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  unary_kernel.get(x.device())(op, x, y);
  return y;
}

Tensor elementwise(GradientOp op, const Tensor& saved, const Tensor& dy) {
  check_real(saved, "elementwise");
  CONVSCOPE_CHECK(dy.defined() && saved.shape() == dy.shape() && saved.dtype() == dy.dtype() &&
                      saved.device() == dy.device(),
                  "elementwise", "expected a gradient ", saved.str(), ", got ", dy.str());
  Tensor dx = Tensor::empty(dy.shape(), dy.dtype(), dy.device());
  gradient_kernel.get(dy.device())(op, saved, dy, dx);
  return dx;
}

Tensor scale(const Tensor& x, double factor) {
  check_real(x, "scale");
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  scale_kernel.get(x.device())(factor, x, y);
  return y;
}

namespace {

// y = a op b, repeated to one shape.
class BinaryOperation final : public Operation {
 public:
  explicit BinaryOperation(BinaryOp op) : Operation(name_of(op)), op_(op) {}

  TensorDesc bind(Graph& graph) override {
    check_real_inputs(graph, *this);
    return {broadcast_shape(graph.shape(inputs[0]), graph.shape(inputs[1]), name_of(op_)),
            graph.dtype(inputs[0])};
  }
  // Unused lanes after the last channel stay 0, except in a quotient. In NCHW16c one input may be
  // repeated along the pixels.
  std::optional<Format> format(const Graph& graph, ActivationLayout layout) const override {
    const Shape &a = graph.shape(inputs[0]), &b = graph.shape(inputs[1]);
    const bool same = a == b;
    const bool per_channel = a.rank() == 4 && b.rank() == 4 && a[0] == b[0] && a[1] == b[1];
    return SimpleOperation::Layouts{.nchw16c = op_ != BinaryOp::div && (same || per_channel),
                                    .nhwc = same && op_ == BinaryOp::add}
        .format(layout);
  }

  void forward(Emitter& emitter) override {
    emitter.call([run = binary_kernel.get(emitter.device()), op = op_, a = emitter.value(inputs[0]),
                  b = emitter.value(inputs[1]), y = emitter.value(output())] { run(op, a, b, y); });
  }

  // Handles the second input first, because the first input may take over the memory of dy.
  void backward(Emitter& emitter) override {
    for (const std::size_t i : {std::size_t{1}, std::size_t{0}}) {
      if (emitter.graph().wants_gradient(inputs[i])) emit_gradient(emitter, i);
    }
  }

 private:
  void emit_gradient(Emitter& emitter, std::size_t i) {
    const Graph& graph = emitter.graph();
    const Shape own = graph.stored_shape(inputs[i]), whole = graph.stored_shape(output());
    const bool is_dy = op_ == BinaryOp::add || (op_ == BinaryOp::sub && i == 0);
    if (is_dy && own == whole) {
      return i == 0 ? emitter.pass_gradient(output(), inputs[0])
                    : copy_gradient(emitter, output(), inputs[1]);
    }
    const bool is_product = op_ == BinaryOp::mul || op_ == BinaryOp::div;
    // db of a / b is -(dy / b) y / b.
    const bool negates = !is_dy && i == 1 && op_ != BinaryOp::mul;
    const Tensor a = op_ == BinaryOp::mul && i == 1 ? emitter.value(inputs[0]) : Tensor();
    const Tensor b = op_ == BinaryOp::div || (op_ == BinaryOp::mul && i == 0)
                         ? emitter.value(inputs[1])
                         : Tensor();
    const Tensor y = op_ == BinaryOp::div && i == 1 ? emitter.value(output()) : Tensor();
    const Tensor dy = emitter.gradient(output());
    const Tensor product =
        is_product && own != whole ? emitter.use(emitter.slot(whole, dy.dtype())) : Tensor();
    emitter.assign_gradient(inputs[i], [&](const Tensor& dx) {
      emitter.call([op = op_, a, b, y, dy, dx, negates, is_product,
                    all = product.defined() ? product : dx, mask = repeated_axes(whole, own),
                    device = emitter.device()] {
        const auto run = binary_kernel.get(device);
        if (is_product) run(op, dy, b.defined() ? b : a, all);
        if (y.defined()) run(BinaryOp::mul, all, y, all);
        if (mask != 0) sum_kernel.get(device)(is_product ? all : dy, mask, dx);
        if (negates) scale_kernel.get(device)(-1.0, !is_product && mask == 0 ? dy : dx, dx);
      });
    });
  }

  BinaryOp op_;
};

// y = f(x). The gradient needs y or x.
class UnaryOperation final : public Operation {
 public:
  explicit UnaryOperation(UnaryOp op) : Operation(name_of(op)), op_(op) {}

  TensorDesc bind(Graph& graph) override {
    check_real_inputs(graph, *this);
    return graph.desc(inputs[0]);
  }
  // Lanes after the last channel of NCHW16c and NHWC images must stay 0, so only functions with
  // f(0) = 0 support these layouts.
  std::optional<Format> format(const Graph&, ActivationLayout layout) const override {
    const bool keeps_zero = op_ != UnaryOp::sigmoid && op_ != UnaryOp::exp && op_ != UnaryOp::log;
    return SimpleOperation::Layouts{.nchw16c = keeps_zero,
                                    .nhwc = op_ == UnaryOp::relu || op_ == UnaryOp::tanh}
        .format(layout);
  }

  void forward(Emitter& emitter) override {
    emitter.call([run = unary_kernel.get(emitter.device()), op = op_, x = emitter.value(inputs[0]),
                  y = emitter.value(output())] { run(op, x, y); });
  }

  void backward(Emitter& emitter) override {
    const Tensor dy = emitter.gradient(output());
    emitter.assign_gradient(inputs[0], [&](const Tensor& dx) {
      if (op_ == UnaryOp::neg) {
        return emitter.call(
            [run = unary_kernel.get(emitter.device()), dy, dx] { run(UnaryOp::neg, dy, dx); });
      }
      if (op_ == UnaryOp::exp || op_ == UnaryOp::log) {  // dy y, dy / x
        const bool is_exp = op_ == UnaryOp::exp;
        return emitter.call(
            [run = binary_kernel.get(emitter.device()), dy, dx,
             op = is_exp ? BinaryOp::mul : BinaryOp::div,
             v = emitter.value(is_exp ? output() : inputs[0])] { run(op, dy, v, dx); });
      }
      emitter.call([run = gradient_kernel.get(emitter.device()), op = gradient_of(op_), dy, dx,
                    y = emitter.value(output())] { run(op, y, dy, dx); });
    });
  }

 private:
  static GradientOp gradient_of(UnaryOp op) {
    return op == UnaryOp::relu   ? GradientOp::relu
           : op == UnaryOp::tanh ? GradientOp::tanh
           : op == UnaryOp::sqrt ? GradientOp::sqrt
                                 : GradientOp::sigmoid;
  }

  UnaryOp op_;
};

class ScaleOperation final : public SimpleOperation {
 public:
  explicit ScaleOperation(double factor)
      : SimpleOperation("scale", {.nchw16c = true, .nhwc = false}), factor_(factor) {}
  void run(const Forward& a) const override { scale_kernel.get(a.device())(factor_, a.x[0], a.y); }
  void run(const Backward& a) const override {
    scale_kernel.get(a.device())(factor_, a.dy, a.dx[0]);
  }

 private:
  double factor_;
};

Variable binary(BinaryOp op, const Variable& a, const Variable& b) {
  return apply(std::make_unique<BinaryOperation>(op), {a, b});
}
Variable unary(UnaryOp op, const Variable& x) {
  return apply(std::make_unique<UnaryOperation>(op), {x});
}

}  // namespace

Variable add(const Variable& a, const Variable& b) { return binary(BinaryOp::add, a, b); }
Variable sub(const Variable& a, const Variable& b) { return binary(BinaryOp::sub, a, b); }
Variable mul(const Variable& a, const Variable& b) { return binary(BinaryOp::mul, a, b); }
Variable div(const Variable& a, const Variable& b) { return binary(BinaryOp::div, a, b); }

Variable neg(const Variable& x) { return unary(UnaryOp::neg, x); }
Variable exp(const Variable& x) { return unary(UnaryOp::exp, x); }
Variable log(const Variable& x) { return unary(UnaryOp::log, x); }
Variable sqrt(const Variable& x) { return unary(UnaryOp::sqrt, x); }
Variable relu(const Variable& x) { return unary(UnaryOp::relu, x); }
Variable tanh(const Variable& x) { return unary(UnaryOp::tanh, x); }
Variable sigmoid(const Variable& x) { return unary(UnaryOp::sigmoid, x); }

Variable scale(const Variable& x, double factor) {
  return apply(std::make_unique<ScaleOperation>(factor), {x});
}

}  // namespace convscope
