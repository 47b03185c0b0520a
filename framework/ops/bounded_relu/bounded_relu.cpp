// SPDX-License-Identifier: Apache-2.0
// bounded_relu.cpp: a ReLU with an upper bound: the gradient, and the GPU version, which consists
// of the kernels of elementwise.h.
#include "framework/ops/bounded_relu/bounded_relu.h"

#include "framework/ops/accumulate.h"
#include "framework/ops/elementwise.h"
#include "framework/tensor_kernels.h"

namespace convscope {

constinit KernelSlot<void(const Tensor&, double, const Tensor&, const Tensor&)> bounded_relu_kernel{
    "bounded_relu"};
constinit KernelSlot<void(const Tensor&, const Tensor&, double, const Tensor&, const Tensor&)>
    bounded_relu_gradient_kernel{"bounded_relu"};

namespace {

// Returns row `row` of the scratch memory as a tensor of `shape`.
Tensor row_of(const Tensor& scratch, std::int64_t row, const Shape& shape) {
  return scratch.slice_rows(row, 1).reshape(shape);
}

Tensor scratch_for(const Tensor& x, bool forward) {
  return Tensor::empty(bounded_relu_scratch(x.device(), x.numel(), forward), x.dtype(), x.device());
}

}  // namespace

Shape bounded_relu_scratch(Device device, std::int64_t elements, bool forward) {
  if (device.type == DeviceType::cpu) return {0};
  return {forward ? 2 : 1, elements};
}

void bounded_relu_composed(const Tensor& x, double most, const Tensor& scratch, const Tensor& y) {
  const Device device = x.device();
  const Tensor bound = row_of(scratch, 0, x.shape());
  const Tensor left = row_of(scratch, 1, x.shape());
  fill_kernel.get(device)(bound, most);
  binary_kernel.get(device)(BinaryOp::sub, bound, x, left);
  unary_kernel.get(device)(UnaryOp::relu, x, y);
  gradient_kernel.get(device)(GradientOp::relu, left, y, y);
  gradient_kernel.get(device)(GradientOp::relu, left, bound, left);
  binary_kernel.get(device)(BinaryOp::sub, bound, left, left);
  accumulate_kernel.get(device)(y, left);
}

void bounded_relu_gradient_composed(const Tensor& y, const Tensor& dy, double most,
                                    const Tensor& scratch, const Tensor& dx) {
  const Device device = y.device();
  const Tensor left = row_of(scratch, 0, y.shape());
  fill_kernel.get(device)(left, most);
  binary_kernel.get(device)(BinaryOp::sub, left, y, left);
  gradient_kernel.get(device)(GradientOp::relu, y, dy, dx);
  gradient_kernel.get(device)(GradientOp::relu, left, dx, dx);
}

Variable bounded_relu(const Variable& x, double most) {
  const Tensor& from = x.value();
  CONVSCOPE_CHECK(from.defined() && (from.dtype() == DType::f32 || from.dtype() == DType::f64),
                  "bounded_relu", "expected x of type f32 or f64, got ", from.str());
  CONVSCOPE_CHECK(most > 0, "bounded_relu", "expected an upper bound above 0, got ", most);
  const Tensor y = Tensor::empty(from.shape(), from.dtype(), from.device());
  if (y.numel() > 0) {
    bounded_relu_kernel.get(y.device())(from, most, scratch_for(from, true), y);
  }
  return record("bounded_relu", y, {x}, [most, y](const Tensor& dy, GradientSink& out) {
    const Tensor dx = Tensor::empty(dy.shape(), dy.dtype(), dy.device());
    if (dy.numel() > 0) {
      bounded_relu_gradient_kernel.get(dy.device())(y, dy, most, scratch_for(y, false), dx);
    }
    out.add(0, dx);
  });
}

CONVSCOPE_KERNEL(bounded_relu_kernel, cuda, bounded_relu_composed)
CONVSCOPE_KERNEL(bounded_relu_gradient_kernel, cuda, bounded_relu_gradient_composed)

}  // namespace convscope
