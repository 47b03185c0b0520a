// SPDX-License-Identifier: Apache-2.0
// elementwise.cpp: element-wise operations with NumPy's broadcasting.
#include "framework/ops/elementwise.h"

#include <algorithm>

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

// Applies an activation whose gradient needs the output, not the input.
Variable activation(UnaryOp op, GradientOp gradient, const Variable& x) {
  Tensor y = elementwise(op, x.value());
  return record(name_of(op), y, {x}, [gradient, y](const Tensor& dy, GradientSink& out) {
    out.add(0, elementwise(gradient, y, dy));
  });
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

Tensor sum_to(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  unsigned mask = 0;
  for (int axis = 0; axis < x.rank(); ++axis) {
    const int target = axis - (x.rank() - shape.rank());
    if (target < 0 || (shape[target] == 1 && x.shape()[axis] != 1)) mask |= 1u << axis;
  }
  Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  sum_kernel.get(x.device())(x, mask, y);
  return y;
}

Tensor expand(const Tensor& x, const Shape& shape, double factor) {
  check_real(x, "expand");
  CONVSCOPE_CHECK(broadcast_shape(x.shape(), shape, "expand") == shape, "expand",
                  "expected x to fit into ", shape, ", got ", x.str());
  Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  const Tensor f = Tensor::full(Shape{}, factor, x.dtype(), x.device());
  if (y.numel() > 0) binary_kernel.get(x.device())(BinaryOp::mul, x, f, y);
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

Variable add(const Variable& a, const Variable& b) {
  Tensor y = elementwise(BinaryOp::add, a.value(), b.value());
  return record("add", y, {a, b},
                [shape_a = a.shape(), shape_b = b.shape()](const Tensor& dy, GradientSink& out) {
                  // out.add() keeps the tensor, which may be modified later. So if both inputs need
                  // a gradient, only one of them gets dy itself, and the other gets a copy.
                  const bool both = out.wants(0) && out.wants(1);
                  if (out.wants(0)) out.add(0, sum_to(dy, shape_a));
                  if (!out.wants(1)) return;
                  const Tensor db = sum_to(dy, shape_b);
                  out.add(1, both && db.shares_memory_with(dy) ? dy.clone() : db);
                });
}

Variable sub(const Variable& a, const Variable& b) {
  Tensor y = elementwise(BinaryOp::sub, a.value(), b.value());
  return record("sub", y, {a, b},
                [shape_a = a.shape(), shape_b = b.shape()](const Tensor& dy, GradientSink& out) {
                  if (out.wants(1)) out.add(1, scale(sum_to(dy, shape_b), -1.0));
                  if (out.wants(0)) out.add(0, sum_to(dy, shape_a));
                });
}

Variable mul(const Variable& a, const Variable& b) {
  Tensor y = elementwise(BinaryOp::mul, a.value(), b.value());
  return record(
      "mul", y, {a, b},
      // Saves each operand if the other one needs a gradient.
      [a = b.requires_grad() ? a.value() : Tensor(), b = a.requires_grad() ? b.value() : Tensor(),
       shape_a = a.shape(), shape_b = b.shape()](const Tensor& dy, GradientSink& out) {
        if (out.wants(0)) {
          out.add(0, sum_to(elementwise(BinaryOp::mul, dy, b), shape_a));
        }
        if (out.wants(1)) {
          out.add(1, sum_to(elementwise(BinaryOp::mul, dy, a), shape_b));
        }
      });
}

Variable div(const Variable& a, const Variable& b) {
  Tensor y = elementwise(BinaryOp::div, a.value(), b.value());
  return record("div", y, {a, b},
                [y, b = b.value(), shape_a = a.shape()](const Tensor& dy, GradientSink& out) {
                  const Tensor slope = elementwise(BinaryOp::div, dy, b);  // dy / b
                  if (out.wants(1)) {                                      // db = -dy y / b
                    const Tensor db = sum_to(elementwise(BinaryOp::mul, slope, y), b.shape());
                    out.add(1, scale(db, -1.0));
                  }
                  if (out.wants(0)) out.add(0, sum_to(slope, shape_a));
                });
}

Variable neg(const Variable& x) {
  return record(
      "neg", elementwise(UnaryOp::neg, x.value()), {x},
      [](const Tensor& dy, GradientSink& out) { out.add(0, elementwise(UnaryOp::neg, dy)); });
}

Variable scale(const Variable& x, double factor) {
  return record("scale", scale(x.value(), factor), {x},
                [factor](const Tensor& dy, GradientSink& out) { out.add(0, scale(dy, factor)); });
}

Variable exp(const Variable& x) {
  Tensor y = elementwise(UnaryOp::exp, x.value());
  return record("exp", y, {x}, [y](const Tensor& dy, GradientSink& out) {
    out.add(0, elementwise(BinaryOp::mul, dy, y));
  });
}

Variable log(const Variable& x) {
  return record("log", elementwise(UnaryOp::log, x.value()), {x},
                [x = x.value()](const Tensor& dy, GradientSink& out) {
                  out.add(0, elementwise(BinaryOp::div, dy, x));
                });
}

Variable sqrt(const Variable& x) { return activation(UnaryOp::sqrt, GradientOp::sqrt, x); }
Variable relu(const Variable& x) { return activation(UnaryOp::relu, GradientOp::relu, x); }
Variable tanh(const Variable& x) { return activation(UnaryOp::tanh, GradientOp::tanh, x); }
Variable sigmoid(const Variable& x) { return activation(UnaryOp::sigmoid, GradientOp::sigmoid, x); }

}  // namespace convscope
