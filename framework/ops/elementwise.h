// SPDX-License-Identifier: Apache-2.0
// elementwise.h: element-wise operations with NumPy's broadcasting.
//
// Shapes are aligned at the last axis. An axis of size 1, or a missing axis, is repeated. The
// gradient of a repeated input is the sum over its repetitions. Element types are f32 and f64.
#pragma once

#include "framework/autograd/variable.h"
#include "framework/kernel_slot.h"

namespace convscope {

CONVSCOPE_API Variable add(const Variable& a, const Variable& b);
CONVSCOPE_API Variable sub(const Variable& a, const Variable& b);
CONVSCOPE_API Variable mul(const Variable& a, const Variable& b);
CONVSCOPE_API Variable div(const Variable& a, const Variable& b);

CONVSCOPE_API Variable neg(const Variable& x);
CONVSCOPE_API Variable scale(const Variable& x, double factor);
CONVSCOPE_API Variable exp(const Variable& x);
CONVSCOPE_API Variable log(const Variable& x);
CONVSCOPE_API Variable sqrt(const Variable& x);
CONVSCOPE_API Variable relu(const Variable& x);  // max(x, 0); NaN stays NaN; slope 0 at 0
CONVSCOPE_API Variable tanh(const Variable& x);
CONVSCOPE_API Variable sigmoid(const Variable& x);  // 1 / (1 + exp(-x))

inline Variable operator+(const Variable& a, const Variable& b) { return add(a, b); }
inline Variable operator-(const Variable& a, const Variable& b) { return sub(a, b); }
inline Variable operator*(const Variable& a, const Variable& b) { return mul(a, b); }
inline Variable operator/(const Variable& a, const Variable& b) { return div(a, b); }
inline Variable operator-(const Variable& x) { return neg(x); }

// The same operations without a history.
enum class BinaryOp { add, sub, mul, div };
enum class UnaryOp {
  neg,
  exp,
  log,
  sqrt,
  relu,
  tanh,
  sigmoid,
};
// Gradients computed from a tensor that the forward pass has saved: dx = f(saved, dy).
enum class GradientOp {
  sqrt,     // dy / (2 y), saved y
  relu,     // dy where y > 0 or y is NaN, saved y
  tanh,     // dy (1 - y^2), saved y
  sigmoid,  // dy y (1 - y), saved y
};
CONVSCOPE_API Tensor elementwise(BinaryOp op, const Tensor& a, const Tensor& b);
CONVSCOPE_API Tensor elementwise(UnaryOp op, const Tensor& x);
CONVSCOPE_API Tensor elementwise(GradientOp op, const Tensor& saved, const Tensor& dy);
CONVSCOPE_API Tensor scale(const Tensor& x, double factor);

// Returns the shape to which a and b are broadcast. If there is none, throws an error of
// `operation`.
CONVSCOPE_API Shape broadcast_shape(const Shape& a, const Shape& b, const char* operation);

// Kernels. They overwrite y; a and b are repeated to the shape of y.
extern CONVSCOPE_API KernelSlot<void(BinaryOp, const Tensor& a, const Tensor& b, const Tensor& y)>
    binary_kernel;
extern CONVSCOPE_API KernelSlot<void(UnaryOp, const Tensor& x, const Tensor& y)> unary_kernel;
extern CONVSCOPE_API
    KernelSlot<void(GradientOp, const Tensor& saved, const Tensor& dy, const Tensor& dx)>
        gradient_kernel;
extern CONVSCOPE_API KernelSlot<void(double factor, const Tensor& x, const Tensor& y)> scale_kernel;

}  // namespace convscope
