// SPDX-License-Identifier: Apache-2.0
// reduce.cpp: sums, means and maxima over axes.
#include "framework/ops/reduce.h"

#include <limits>

#include "framework/ops/elementwise.h"

namespace convscope {

constinit KernelSlot<void(const Tensor&, unsigned, const Tensor&)> sum_kernel{"sum"};
constinit KernelSlot<void(const Tensor&, unsigned, const Tensor&, const Tensor&)> max_kernel{"max"};
constinit KernelSlot<void(const Tensor&, const Tensor&, const Tensor&)> max_gradient_kernel{"max"};

Axes::Axes(std::initializer_list<int> axes) {
  CONVSCOPE_CHECK(axes.size() <= Shape::kMaxRank, "reduce", "expected at most ", Shape::kMaxRank,
                  " axes, got ", axes.size());
  for (int axis : axes) axes_[count_++] = axis;
}

unsigned Axes::mask(const Shape& shape, const char* operation) const {
  if (all()) return (1u << shape.rank()) - 1u;
  unsigned out = 0;
  for (int i = 0; i < count_; ++i) {
    const int axis = axes_[i] < 0 ? axes_[i] + shape.rank() : axes_[i];
    CONVSCOPE_CHECK(axis >= 0 && axis < shape.rank(), operation, "expected axes in [",
                    -shape.rank(), ",", shape.rank(), ") because x is ", shape, ", got ", axes_[i]);
    CONVSCOPE_CHECK((out >> axis & 1u) == 0, operation, "expected each axis once, got ", axes_[i],
                    " twice");
    out |= 1u << axis;
  }
  return out;
}

namespace {

struct Reduced {
  Shape shape;      // of the result
  Shape with_ones;  // shape of the result if summed axes have size 1
  unsigned mask = 0;
  std::int64_t count = 1;  // elements of x per element of the result
};

Reduced reduced(const Tensor& x, const Axes& axes, bool keepdim, const char* operation) {
  CONVSCOPE_CHECK(x.defined() && (x.dtype() == DType::f32 || x.dtype() == DType::f64), operation,
                  "expected x of type f32 or f64, got ", x.str());
  Reduced out;
  out.mask = axes.mask(x.shape(), operation);
  for (int axis = 0; axis < x.rank(); ++axis) {
    const bool goes = (out.mask >> axis & 1u) != 0;
    if (goes) out.count *= x.shape()[axis];
    if (!goes || keepdim) out.shape.push_back(goes ? 1 : x.shape()[axis]);
    out.with_ones.push_back(goes ? 1 : x.shape()[axis]);
  }
  return out;
}

Tensor sum_of(const Tensor& x, const Reduced& to) {
  Tensor y = Tensor::empty(to.shape, x.dtype(), x.device());
  sum_kernel.get(x.device())(x, to.mask, y);
  return y;
}

}  // namespace

Tensor sum(const Tensor& x, const Axes& axes, bool keepdim) {
  return sum_of(x, reduced(x, axes, keepdim, "sum"));
}

Variable sum(const Variable& x, const Axes& axes, bool keepdim) {
  const Reduced to = reduced(x.value(), axes, keepdim, "sum");
  return record("sum", sum_of(x.value(), to), {x},
                [shape = x.shape(), ones = to.with_ones](const Tensor& dy, GradientSink& out) {
                  out.add(0, expand(dy.reshape(ones), shape));
                });
}

Variable mean(const Variable& x, const Axes& axes, bool keepdim) {
  const Reduced to = reduced(x.value(), axes, keepdim, "mean");
  const double factor = 1.0 / static_cast<double>(to.count);
  return record(
      "mean", scale(sum_of(x.value(), to), factor), {x},
      [shape = x.shape(), ones = to.with_ones, factor](const Tensor& dy, GradientSink& out) {
        out.add(0, expand(dy.reshape(ones), shape, factor));
      });
}

Variable max(const Variable& x, const Axes& axes, bool keepdim) {
  const Reduced to = reduced(x.value(), axes, keepdim, "max");
  CONVSCOPE_CHECK(to.count > 0, "max", "expected at least one element along the axes, got ",
                  x.shape());
  CONVSCOPE_CHECK(x.value().numel() <= std::numeric_limits<std::int32_t>::max(), "max",
                  "expected fewer than 2^31 elements, got ", x.shape());
  const Tensor y = Tensor::empty(to.shape, x.dtype(), x.device());
  const Tensor places = Tensor::empty(to.shape, DType::i32, x.device());
  max_kernel.get(x.device())(x.value(), to.mask, y, places);
  return record("max", y, {x}, [places, shape = x.shape()](const Tensor& dy, GradientSink& out) {
    const Tensor dx = Tensor::empty(shape, dy.dtype(), dy.device());
    max_gradient_kernel.get(dy.device())(dy, places, dx);
    out.add(0, dx);
  });
}

}  // namespace convscope
