// SPDX-License-Identifier: Apache-2.0
// layout_op.cpp: the copy of a value into another layout in a planned step, and of its gradient
// back.
#include "layers/plan/layout_op.h"

#include "layers/dispatch/card.h"

namespace convscope {

std::string LayoutOp::text() const {
  return cat(conversions_ == 0 ? "seen as " : "copy to ", name_of(to_));
}

void LayoutOp::forward(PlanBuilder& builder) {
  conversions_ = 0;
  if (builder.graph().owner(output) == builder.graph().owner(inputs[0])) return;
  ++conversions_;
  builder.call(
      [from = builder.value(inputs[0]), to = builder.value(output),
       images = builder.shape(output)] { convert_layout(from, images, to, /*accumulate=*/false); });
}

void LayoutOp::backward(PlanBuilder& builder) {
  if (conversions_ == 0 || !builder.wants_gradient(inputs[0])) return;
  ++conversions_;
  const PlanBuilder::Target target = builder.gradient_target(inputs[0]);
  builder.call([from = builder.gradient(output), target, images = builder.shape(output)] {
    convert_layout(from, images, target.tensor, target.accumulate);
  });
}

double conversion_ms(const PlanGraph& graph, ValueId value) {
  constexpr double kCallMs = 2e-3;  // so that values of a few KiB do not look free
  const Shape& images = graph.shape(value);
  if (has_one_order(images)) return 0;
  const auto plain = static_cast<double>(images.numel());
  const auto blocked = static_cast<double>(stored_shape(images, ActivationLayout::blocked).numel());
  const double once = kCallMs + estimated_ms({.bytes = sizeof(float) * (plain + blocked)},
                                             graph.device().type, DType::f32);
  return graph.wants_gradient(value) ? 2 * once : once;
}

bool has_one_order(const Shape& images) {
  return images[2] * images[3] == 1 && images[1] % kChannelBlock == 0;
}

}  // namespace convscope
