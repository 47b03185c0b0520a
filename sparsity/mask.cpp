// SPDX-License-Identifier: Apache-2.0
// mask.cpp: which weights of a layer take part.
#include "sparsity/mask.h"

#include "framework/ops/elementwise.h"
#include "layers/plan/operation_op.h"

namespace convscope {

Mask::Mask(const Tensor& weight) {
  CONVSCOPE_CHECK(weight.dtype() == DType::f32, "mask", "expected a weight of type f32, got ",
                  weight);
  add_buffer("keep", keep_, Tensor::full(weight.shape(), 1.0, DType::f32, weight.device()));
}

void Mask::moved_to(Device device) {
  if (observed_.defined()) observed_ = observed_.to(device);
}

void Mask::observe_gradient(bool on) {
  observing_ = on;
  if (on && !observed_.defined())
    observed_ = Tensor::zeros(keep_.shape(), DType::f32, keep_.device());
}

namespace {

class MaskOperation final : public Operation {
 public:
  // observed: gets dy; undefined: nobody asks.
  MaskOperation(const Tensor& keep, bool dense_gradient, const Tensor& observed)
      : keep_(keep), dense_gradient_(dense_gradient), observed_(observed) {}
  const char* name() const override { return "mask"; }
  void forward(const OperationForward& a) const override {
    binary_kernel.get(a.device())(BinaryOp::mul, a.x[0], keep_, a.y);
  }
  void backward(const OperationBackward& a) const override {
    if (observed_.defined()) observed_.copy_from(a.dy);
    if (!a.dx[0].defined()) return;
    if (dense_gradient_) return a.dx[0].copy_from(a.dy);
    binary_kernel.get(a.device())(BinaryOp::mul, a.dy, keep_, a.dx[0]);
  }

 private:
  Tensor keep_;
  bool dense_gradient_;
  Tensor observed_;
};

}  // namespace

Ref<const Operation> Mask::operation() const {
  return make_ref<MaskOperation>(keep_, dense_gradient_, observing_ ? observed_ : Tensor());
}

Variable Mask::forward(const Variable& w) {
  CONVSCOPE_CHECK(w.shape() == keep_.shape(), "mask", "expected a weight ", keep_.shape(),
                  " because the mask is of that shape, got ", w.shape());
  return apply(operation(), {w});
}

// Masks change in their memory, so a plan sees the new one.
int Mask::describe(PlanGraph& graph, int w) {
  graph.valid_while(
      [this, keep = keep_.raw_data(), dense = dense_gradient_, observing = observing_] {
        return keep_.raw_data() == keep && dense_gradient_ == dense && observing_ == observing;
      });
  return describe_operation(graph, *this, operation(), {w});
}

bool belongs_to_mask(std::string_view name) { return name.ends_with(".mask.keep"); }

}  // namespace convscope
