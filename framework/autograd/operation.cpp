// SPDX-License-Identifier: Apache-2.0
// operation.cpp: runs an operation in the dynamic graph, and contains the default functions of
// Operation.
#include "framework/autograd/operation.h"

#include <algorithm>
#include <optional>

namespace convscope {
namespace {

class OperationNode final : public Node {
 public:
  OperationNode(Ref<const Operation> operation, OperationBackward kept, std::vector<Shape> shapes,
                std::vector<TensorSize> scratch)
      : Node(operation->name()),
        operation_(std::move(operation)),
        kept_(std::move(kept)),
        shapes_(std::move(shapes)),
        scratch_(std::move(scratch)) {}

 protected:
  void run(const Tensor& dy, GradientSink& sink) override {
    OperationBackward a = *kept_;
    a.dy = dy;
    const int count = static_cast<int>(shapes_.size());
    for (int i = 0; i < count; ++i) {
      a.dx.push_back(sink.wants(i) ? Tensor::empty(shapes_[static_cast<std::size_t>(i)], dy.dtype(),
                                                   dy.device())
                                   : Tensor());
    }
    for (const TensorSize& size : scratch_) {
      a.scratch.push_back(Tensor::empty(size.shape, size.dtype, dy.device()));
    }
    if (dy.numel() > 0) {
      operation_->backward(a);
    } else {
      for (const Tensor& dx : a.dx) {
        if (dx.defined()) dx.fill(0);
      }
    }
    for (int i = 0; i < count; ++i) {
      if (sink.wants(i)) sink.add(i, a.dx[static_cast<std::size_t>(i)]);
    }
  }
  void drop_saved() override { kept_.reset(); }

 private:
  Ref<const Operation> operation_;
  std::optional<OperationBackward> kept_;
  std::vector<Shape> shapes_;
  std::vector<TensorSize> scratch_;
};

}  // namespace

double Operation::backward_piece(const OperationBackward&, const float*, const float*, float*,
                                 std::int64_t) const {
  return 0;
}

void Operation::forward_together(const Operation* const* all, const OperationForward* a,
                                 int count) const {
  for (int i = 0; i < count; ++i) all[i]->forward(a[i]);
}

void Operation::backward_together(const Operation* const* all, const OperationBackward* a,
                                  int count) const {
  for (int i = 0; i < count; ++i) all[i]->backward(a[i]);
}

Variable apply(Ref<const Operation> operation, const std::vector<Variable>& x, std::int64_t step) {
  const char* const name = operation->name();
  CONVSCOPE_CHECK(!x.empty() && x.size() <= Node::kMaxInputs, name, "expected 1 to ",
                  Node::kMaxInputs, " inputs, got ", x.size());
  OperationForward a;
  std::vector<Shape> shapes;
  bool needed = false;
  for (const Variable& input : x) {
    CONVSCOPE_CHECK(input.defined() &&
                        (input.dtype() == DType::f32 || input.dtype() == DType::f64) &&
                        input.dtype() == x[0].dtype() && input.device() == x[0].device(),
                    name, "expected inputs of type f32 or f64, all of one type on one device, got ",
                    input.defined() ? input.value().str() : "none");
    needed = needed || input.requires_grad();
    shapes.push_back(input.shape());
    a.x.push_back(input.value());
  }
  needed = needed && grad_enabled();
  const OperationKeeps keeps = operation->keeps(shapes);
  a.y = Tensor::empty(operation->output_shape(shapes), x[0].dtype(), x[0].device());
  for (const TensorSize& size : keeps.saved) {
    a.saved.push_back(needed ? Tensor::empty(size.shape, size.dtype, x[0].device()) : Tensor());
  }
  a.step.offset = step;
  if (a.y.numel() > 0) operation->forward(a);
  if (!needed) return Variable(a.y);
  OperationBackward kept{.dy = {},
                         .x = keeps.inputs ? a.x : std::vector<Tensor>{},
                         .y = keeps.output ? a.y : Tensor(),
                         .saved = a.saved,
                         .scratch = {},
                         .dx = {},
                         .step = a.step};
  return attach(a.y, x.data(), static_cast<int>(x.size()),
                make_ref<OperationNode>(std::move(operation), std::move(kept), std::move(shapes),
                                        keeps.scratch));
}

}  // namespace convscope
