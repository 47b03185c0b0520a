// SPDX-License-Identifier: Apache-2.0
// reduce.cpp: sums, means and maxima over axes.
#include "framework/ops/reduce.h"

#include <limits>

#include "framework/graph/simple_operation.h"
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

// Returns the shape of x after a reduction. The reduced axes are gone, or have size 1 if `keeps`.
Shape reduced_shape(const Shape& x, unsigned mask, bool keeps) {
  Shape out;
  for (int axis = 0; axis < x.rank(); ++axis) {
    const bool goes = (mask >> axis & 1u) != 0;
    if (!goes || keeps) out.push_back(goes ? 1 : x[axis]);
  }
  return out;
}

// Returns the number of elements of x for each element of the result.
std::int64_t reduced_count(const Shape& x, unsigned mask) {
  std::int64_t count = 1;
  for (int axis = 0; axis < x.rank(); ++axis) count *= (mask >> axis & 1u) != 0 ? x[axis] : 1;
  return count;
}

// y = sum of x, or its mean.
class SumOperation final : public SimpleOperation {
 public:
  SumOperation(bool is_mean, const Axes& axes, bool keepdim)
      : SimpleOperation(is_mean ? "mean" : "sum"),
        is_mean_(is_mean),
        axes_(axes),
        keepdim_(keepdim) {}

  TensorDesc bind(Graph& graph) override {
    dtype_ = graph.dtype(inputs[0]);
    return SimpleOperation::bind(graph);
  }
  Shape output_shape(const std::vector<Shape>& x) const override {
    return reduced_shape(x[0], mask(x[0]), keepdim_);
  }
  Keeps keeps(const std::vector<Shape>&) const override { return {.scratch = {{{}, dtype_}}}; }

  void run(const Forward& a) const override {
    const Shape& x = a.x[0].shape();
    sum_kernel.get(a.device())(a.x[0], mask(x), a.y);
    if (is_mean_) scale_kernel.get(a.device())(factor(x), a.y, a.y);
  }
  // Each element of dx is that of dy times the factor.
  void run(const Backward& a) const override {
    const Tensor& dx = a.dx[0];
    if (dx.numel() == 0) return;
    a.scratch[0].fill(factor(dx.shape()));
    const Tensor dy = a.dy.reshape(reduced_shape(dx.shape(), mask(dx.shape()), /*keeps=*/true));
    binary_kernel.get(a.device())(BinaryOp::mul, dy, a.scratch[0], dx);
  }

 private:
  unsigned mask(const Shape& x) const { return axes_.mask(x, kind().data()); }
  double factor(const Shape& x) const {
    return is_mean_ ? 1.0 / static_cast<double>(reduced_count(x, mask(x))) : 1.0;
  }

  bool is_mean_;
  Axes axes_;
  bool keepdim_;
  DType dtype_ = DType::f32;
};

class MaxOperation final : public Operation {
 public:
  MaxOperation(const Axes& axes, bool keepdim) : Operation("max"), axes_(axes), keepdim_(keepdim) {}

  TensorDesc bind(Graph& graph) override {
    check_real_inputs(graph, *this);
    const Shape& x = graph.shape(inputs[0]);
    mask_ = axes_.mask(x, "max");
    CONVSCOPE_CHECK(reduced_count(x, mask_) > 0, "max",
                    "expected at least one element along the axes, got ", x);
    CONVSCOPE_CHECK(x.numel() <= std::numeric_limits<std::int32_t>::max(), "max",
                    "expected fewer than 2^31 elements, got ", x);
    return {reduced_shape(x, mask_, keepdim_), graph.dtype(inputs[0])};
  }
  void forward(Emitter& emitter) override {
    places_ = emitter.slot(emitter.graph().shape(output()), DType::i32);
    emitter.call([run = max_kernel.get(emitter.device()), x = emitter.value(inputs[0]),
                  mask = mask_, y = emitter.value(output()),
                  places = emitter.use(places_)] { run(x, mask, y, places); });
  }
  void backward(Emitter& emitter) override {
    emitter.assign_gradient(inputs[0], [&](const Tensor& dx) {
      emitter.call([run = max_gradient_kernel.get(emitter.device()),
                    dy = emitter.gradient(output()), places = emitter.use(places_),
                    dx] { run(dy, places, dx); });
    });
  }

 private:
  Axes axes_;
  bool keepdim_;
  unsigned mask_ = 0;
  Slot places_ = kNoSlot;  // the index in x of each maximum
};

}  // namespace

Tensor sum(const Tensor& x, const Axes& axes, bool keepdim) {
  return sum(Variable(x), axes, keepdim).value();
}

Variable sum(const Variable& x, const Axes& axes, bool keepdim) {
  return apply(std::make_unique<SumOperation>(/*is_mean=*/false, axes, keepdim), {x});
}

Variable mean(const Variable& x, const Axes& axes, bool keepdim) {
  return apply(std::make_unique<SumOperation>(/*is_mean=*/true, axes, keepdim), {x});
}

Variable max(const Variable& x, const Axes& axes, bool keepdim) {
  return apply(std::make_unique<MaxOperation>(axes, keepdim), {x});
}

}  // namespace convscope
