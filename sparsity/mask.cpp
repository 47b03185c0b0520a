// SPDX-License-Identifier: Apache-2.0
#include "sparsity/mask.h"

#include "framework/ops/elementwise.h"

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

Variable Mask::forward(const Variable& w) {
  CONVSCOPE_CHECK(w.shape() == keep_.shape(), "mask", "expected a weight ", keep_.shape(),
                  " because the mask is of that shape, got ", w.shape());
  const Tensor y = elementwise(BinaryOp::mul, w.value(), keep_);
  return record(
      "mask", y, {w},
      [keep = dense_gradient_ ? Tensor() : keep_, observed = observing_ ? observed_ : Tensor()](
          const Tensor& dy, GradientSink& out) {
        if (observed.defined()) observed.copy_from(dy);
        if (!out.wants(0)) return;
        out.add(0, keep.defined() ? elementwise(BinaryOp::mul, dy, keep) : dy.clone());
      });
}

bool belongs_to_mask(std::string_view name) { return name.ends_with(".mask.keep"); }

}  // namespace convscope
