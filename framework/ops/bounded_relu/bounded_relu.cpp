// SPDX-License-Identifier: Apache-2.0
// bounded_relu.cpp: a ReLU with an upper bound: the gradient, and the GPU version, which consists
// of the kernels of elementwise.h.
#include "framework/ops/bounded_relu/bounded_relu.h"

#include "framework/graph/apply.h"
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

class BoundedReluOperation final : public Operation {
 public:
  explicit BoundedReluOperation(double most)
      : Operation(most == kRelu6Bound ? "relu6" : "bounded_relu"), most_(most) {}
  TensorDesc bind(Graph& graph) override {
    check_real_inputs(graph, *this);
    CONVSCOPE_CHECK(most_ > 0, "bounded_relu", "expected an upper bound above 0, got ", most_);
    return graph.desc(inputs[0]);
  }
  std::optional<Format> format(const Graph&, ActivationLayout) const override { return Format{}; }
  void forward(Emitter& emitter) override {
    emitter.call([run = bounded_relu_kernel.get(emitter.device()), x = emitter.value(inputs[0]),
                  y = emitter.value(output()), most = most_,
                  scratch = scratch_for(emitter, output(), true)] { run(x, most, scratch, y); });
  }
  void backward(Emitter& emitter) override {
    emitter.assign_gradient(inputs[0], [&](const Tensor& dx) {
      emit_bounded_relu_gradient(emitter, output(), most_, dx);
    });
  }

  // Returns scratch memory for the next call; undefined if the device needs none.
  static Tensor scratch_for(Emitter& emitter, ValueId value, bool forward) {
    const Graph& graph = emitter.graph();
    const Shape shape =
        bounded_relu_scratch(emitter.device(), graph.stored_shape(value).numel(), forward);
    return shape.numel() == 0 ? Tensor()
                              : emitter.use(emitter.temporary(shape, graph.dtype(value)));
  }

 private:
  double most_;
};

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

void emit_bounded_relu_gradient(Emitter& emitter, ValueId value, double most, const Tensor& dx) {
  emitter.call([run = bounded_relu_gradient_kernel.get(emitter.device()), y = emitter.value(value),
                dy = emitter.gradient(value), most,
                scratch = BoundedReluOperation::scratch_for(emitter, value, false),
                dx] { run(y, dy, most, scratch, dx); });
}

Variable bounded_relu(const Variable& x, double most) {
  return apply(std::make_unique<BoundedReluOperation>(most), {x});
}

CONVSCOPE_KERNEL(bounded_relu_kernel, cuda, bounded_relu_composed)
CONVSCOPE_KERNEL(bounded_relu_gradient_kernel, cuda, bounded_relu_gradient_composed)

}  // namespace convscope
