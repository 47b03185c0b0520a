// SPDX-License-Identifier: Apache-2.0
// mask.cpp: the mask of a layer's weights: which of them are kept.
#include "sparsity/mask.h"

#include "layers/plan/operation_op.h"

namespace convscope {

constinit KernelSlot<void(const MaskedTensor*, int)> mask_kernel{"mask"};

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
  // observed: receives dy; undefined: not needed.
  MaskOperation(const Tensor& keep, bool dense_gradient, const Tensor& observed)
      : keep_(keep), dense_gradient_(dense_gradient), observed_(observed) {}
  const char* name() const override { return "mask"; }
  Shape output_shape(const std::vector<Shape>& x) const override {
    CONVSCOPE_CHECK(x[0] == keep_.shape(), "mask", "expected a weight ", keep_.shape(),
                    " because the mask is of that shape, got ", x[0]);
    return x[0];
  }
  void forward(const OperationForward& a) const override {
    const MaskedTensor one = forward_of(a);
    mask_kernel.get(a.device())(&one, 1);
  }
  void backward(const OperationBackward& a) const override {
    if (observed_.defined()) observed_.copy_from(a.dy);
    if (!a.dx[0].defined()) return;
    if (dense_gradient_) return a.dx[0].copy_from(a.dy);
    const MaskedTensor one = backward_of(a);
    mask_kernel.get(a.device())(&one, 1);
  }

  // A mask that observes its gradient runs in a separate launch.
  bool runs_with(const Operation& other) const override {
    const auto* const mask = dynamic_cast<const MaskOperation*>(&other);
    return mask != nullptr && is_plain() && mask->is_plain();
  }
  void forward_together(const Operation* const* all, const OperationForward* a,
                        int count) const override {
    std::vector<MaskedTensor> list;
    for (int i = 0; i < count; ++i) list.push_back(of(all[i]).forward_of(a[i]));
    mask_kernel.get(a->device())(list.data(), count);
  }
  void backward_together(const Operation* const* all, const OperationBackward* a,
                         int count) const override {
    std::vector<MaskedTensor> list;
    for (int i = 0; i < count; ++i) {
      if (a[i].dx[0].defined()) list.push_back(of(all[i]).backward_of(a[i]));
    }
    if (!list.empty()) mask_kernel.get(a->device())(list.data(), static_cast<int>(list.size()));
  }

 private:
  static const MaskOperation& of(const Operation* operation) {
    return static_cast<const MaskOperation&>(*operation);
  }
  bool is_plain() const { return !dense_gradient_ && !observed_.defined(); }
  MaskedTensor forward_of(const OperationForward& a) const {
    return {.x = a.x[0], .keep = keep_, .y = a.y};
  }
  MaskedTensor backward_of(const OperationBackward& a) const {
    return {.x = a.dy, .keep = keep_, .y = a.dx[0]};
  }

  Tensor keep_;
  bool dense_gradient_;
  Tensor observed_;
};

}  // namespace

Ref<const Operation> Mask::operation() const {
  return make_ref<MaskOperation>(keep_, dense_gradient_, observing_ ? observed_ : Tensor());
}

Variable Mask::forward(const Variable& w) { return apply(operation(), {w}); }

// Masks change in place, so a compiled step that was built earlier reads the new mask.
int Mask::describe(Graph& graph, int w) {
  graph.valid_while(
      [this, keep = keep_.raw_data(), dense = dense_gradient_, observing = observing_] {
        return keep_.raw_data() == keep && dense_gradient_ == dense && observing_ == observing;
      });
  return describe_operation(graph, *this, operation(), {w});
}

bool belongs_to_mask(std::string_view name) { return name.ends_with(".mask.keep"); }

}  // namespace convscope
