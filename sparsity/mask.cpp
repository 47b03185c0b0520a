// SPDX-License-Identifier: Apache-2.0
// mask.cpp: the mask of a layer's weights: which of them are kept.
#include "sparsity/mask.h"

#include "framework/graph/simple_operation.h"

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

class MaskOperation final : public SimpleOperation {
 public:
  // blocks: those of `keep`; may be null. observed: receives dy; undefined: not needed.
  MaskOperation(const Tensor& keep, Ref<SparseWeights> blocks, bool dense_gradient,
                const Tensor& observed)
      : SimpleOperation("mask"),
        keep_(keep),
        blocks_(std::move(blocks)),
        dense_gradient_(dense_gradient),
        observed_(observed) {}
  TensorDesc bind(Graph& graph) override {
    TensorDesc out = SimpleOperation::bind(graph);
    out.kept = blocks_;
    return out;
  }
  Shape output_shape(const std::vector<Shape>& x) const override {
    CONVSCOPE_CHECK(x[0] == keep_.shape(), "mask", "expected a weight ", keep_.shape(),
                    " because the mask is of that shape, got ", x[0]);
    return x[0];
  }
  void run(const Forward& a) const override {
    const MaskedTensor one = forward_of(a);
    mask_kernel.get(a.device())(&one, 1);
  }
  void run(const Backward& a) const override {
    if (observed_.defined()) observed_.copy_from(a.dy);
    if (!a.dx[0].defined()) return;
    if (dense_gradient_) return a.dx[0].copy_from(a.dy);
    const MaskedTensor one = backward_of(a);
    mask_kernel.get(a.device())(&one, 1);
  }

  // A mask that observes its gradient runs in a separate launch.
  bool runs_with(const SimpleOperation& other) const override {
    const auto* const mask = dynamic_cast<const MaskOperation*>(&other);
    return mask != nullptr && is_plain() && mask->is_plain();
  }
  void run_together(const SimpleOperation* const* all, const Forward* a, int count) const override {
    std::vector<MaskedTensor> list;
    for (int i = 0; i < count; ++i) list.push_back(of(all[i]).forward_of(a[i]));
    mask_kernel.get(a->device())(list.data(), count);
  }
  void run_together(const SimpleOperation* const* all, const Backward* a,
                    int count) const override {
    std::vector<MaskedTensor> list;
    for (int i = 0; i < count; ++i) {
      if (a[i].dx[0].defined()) list.push_back(of(all[i]).backward_of(a[i]));
    }
    if (!list.empty()) mask_kernel.get(a->device())(list.data(), static_cast<int>(list.size()));
  }

 private:
  static const MaskOperation& of(const SimpleOperation* operation) {
    return static_cast<const MaskOperation&>(*operation);
  }
  bool is_plain() const { return !dense_gradient_ && !observed_.defined(); }
  MaskedTensor forward_of(const Forward& a) const { return {.x = a.x[0], .keep = keep_, .y = a.y}; }
  MaskedTensor backward_of(const Backward& a) const {
    return {.x = a.dy, .keep = keep_, .y = a.dx[0]};
  }

  Tensor keep_;
  Ref<SparseWeights> blocks_;
  bool dense_gradient_;
  Tensor observed_;
};

}  // namespace

// Masks change in place, so a compiled step that was built earlier reads the new mask.
Variable Mask::forward(const Variable& w) {
  if (w.graph() != nullptr) {
    w.graph()->valid_while([this, keep = keep_.raw_data(), blocks = blocks_,
                            dense = dense_gradient_, observing = observing_] {
      return keep_.raw_data() == keep && blocks_ == blocks && dense_gradient_ == dense &&
             observing_ == observing;
    });
  }
  return apply(std::make_unique<MaskOperation>(keep_, blocks_, dense_gradient_,
                                               observing_ ? observed_ : Tensor()),
               {w});
}

bool belongs_to_mask(std::string_view name) { return name.ends_with(".mask.keep"); }

}  // namespace convscope
