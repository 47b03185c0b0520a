// SPDX-License-Identifier: Apache-2.0
// softmax.cpp: turns numbers into probabilities along one axis.
#include "layers/softmax/softmax.h"

#include <algorithm>
#include <cmath>

#include "framework/graph/simple_operation.h"
#include "framework/parallel.h"
#include "layers/layer_types.h"

namespace convscope {

constinit KernelSlot<void(const SoftmaxSizes&, const Tensor&, const Tensor&)> softmax_axis_kernel{
    "softmax"};
constinit KernelSlot<void(const SoftmaxSizes&, const Tensor&, const Tensor&, const Tensor&)>
    softmax_axis_gradient_kernel{"softmax"};

namespace {

class SoftmaxOperation final : public SimpleOperation {
 public:
  explicit SoftmaxOperation(int axis) : SimpleOperation("softmax"), axis_(axis) {}
  Shape output_shape(const std::vector<Shape>& x) const override {
    return Softmax(axis_).output_shape(x[0]);
  }
  Keeps keeps(const std::vector<Shape>&) const override { return {.output = true}; }
  void run(const Forward& a) const override {
    softmax_axis_kernel.get(a.device())(sizes(a.y.shape()), a.x[0], a.y);
  }
  void run(const Backward& a) const override {
    softmax_axis_gradient_kernel.get(a.device())(sizes(a.dy.shape()), a.y, a.dy, a.dx[0]);
  }

 private:
  SoftmaxSizes sizes(const Shape& x) const {
    SoftmaxSizes out{1, x[axis_], 1};
    for (int axis = 0; axis < axis_; ++axis) out.outer *= x[axis];
    for (int axis = axis_ + 1; axis < x.rank(); ++axis) out.inner *= x[axis];
    return out;
  }
  int axis_;
};

// Calls body(offset of the first number) for each list of numbers along the axis.
template <class Body>
void for_lists(const SoftmaxSizes& size, const Body& body) {
  const std::int64_t grain = std::max<std::int64_t>(1, (1 << 12) / (1 + size.size));
  parallel_for(size.outer * size.inner, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      body(i / size.inner * size.size * size.inner + i % size.inner);
    }
  });
}

template <class T>
void softmax_typed(const SoftmaxSizes& size, const T* x, T* y) {
  for_lists(size, [&](std::int64_t first) {
    const std::int64_t end = first + size.size * size.inner;
    T largest = x[first];
    for (std::int64_t i = first; i < end; i += size.inner) largest = std::max(largest, x[i]);
    T sum = 0;
    for (std::int64_t i = first; i < end; i += size.inner) {
      y[i] = std::exp(x[i] - largest);
      sum += y[i];
    }
    for (std::int64_t i = first; i < end; i += size.inner) y[i] /= sum;
  });
}

template <class T>
void softmax_gradient_typed(const SoftmaxSizes& size, const T* y, const T* dy, T* dx) {
  for_lists(size, [&](std::int64_t first) {
    const std::int64_t end = first + size.size * size.inner;
    T sum = 0;
    for (std::int64_t i = first; i < end; i += size.inner) sum += dy[i] * y[i];
    for (std::int64_t i = first; i < end; i += size.inner) dx[i] = y[i] * (dy[i] - sum);
  });
}

void softmax_cpu(const SoftmaxSizes& size, const Tensor& x, const Tensor& y) {
  x.dtype() == DType::f64 ? softmax_typed(size, x.data<double>(), y.data<double>())
                          : softmax_typed(size, x.data<float>(), y.data<float>());
}

void softmax_gradient_cpu(const SoftmaxSizes& size, const Tensor& y, const Tensor& dy,
                          const Tensor& dx) {
  dy.dtype() == DType::f64
      ? softmax_gradient_typed(size, y.data<double>(), dy.data<double>(), dx.data<double>())
      : softmax_gradient_typed(size, y.data<float>(), dy.data<float>(), dx.data<float>());
}

}  // namespace

CONVSCOPE_KERNEL(softmax_axis_kernel, cpu, softmax_cpu)
CONVSCOPE_KERNEL(softmax_axis_gradient_kernel, cpu, softmax_gradient_cpu)

Variable softmax(const Variable& x, int axis) {
  return apply(std::make_unique<SoftmaxOperation>(axis), {x});
}

Shape Softmax::output_shape(const Shape& input) const {
  CONVSCOPE_CHECK(axis_ >= 0 && axis_ < input.rank() && input[axis_] >= 1, "softmax",
                  "expected an axis of x with at least one element, got axis ", axis_, " and x ",
                  input);
  return input;
}

CONVSCOPE_REGISTER_LAYER(
    "softmax",
    {.doc = "probabilities: exp(x) divided by its sum along an axis",
     .fields = {{.name = "axis",
                 .type = OptionType::integer,
                 .default_value = std::int64_t{1},
                 .doc = "the axis of the sum; 1 = channels",
                 .min = 1,
                 .max = 3}},
     .build = [](const Options& options, const Shape&, LayerContext&) -> std::shared_ptr<Module> {
       return std::make_shared<Softmax>(static_cast<int>(options.integer("axis")));
     }})

}  // namespace convscope
