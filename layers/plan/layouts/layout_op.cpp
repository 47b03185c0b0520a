// SPDX-License-Identifier: Apache-2.0
// layout_op.cpp: copies a value to another layout or type in a compiled step, and its gradient
// back.
#include "layers/plan/layouts/layout_op.h"

#include "layers/dispatch/algorithm.h"
#include "layers/dispatch/layout/half_copies.h"
#include "layers/dispatch/layout/half_operands_cost.h"

namespace convscope {
namespace {

// Time of a call on a CPU: no copy is estimated as free. On a GPU, the cost counts a launch.
constexpr double kCallMs = 2e-3;

// Copies between f32 NCHW and NHWC, in either direction.
void emit_half_copy(Emitter& emitter, const Tensor& from, ValueId from_value, const Tensor& to,
                    ValueId to_value, bool accumulate, const Shape& images) {
  const bool to_last = emitter.graph().layout(to_value) == ActivationLayout::nhwc;
  HalfCopy copy{.images = images,
                .half = emitter.graph().dtype(to_last ? to_value : from_value),
                .to_nhwc = to_last,
                .accumulate = accumulate};
  emitter.call([run = half_copy_kernel.get(emitter.device()), copy, state = emitter.state(), from,
                to]() mutable {
    copy.from = from.defined() ? from.raw_data() : state->images;
    copy.to = to.raw_data();
    run(copy);
  });
}

}  // namespace

bool LayoutOp::is_nhwc(const Graph& graph) const {
  return graph.layout(inputs[0]) == ActivationLayout::nhwc ||
         graph.layout(output()) == ActivationLayout::nhwc;
}

std::string LayoutOp::text() const {
  return cat(conversions == 0 ? "seen as " : "copy to ", name_of(to_),
             is_half(type_) ? cat(" ", name_of(type_)) : "");
}

void LayoutOp::forward(Emitter& emitter) {
  conversions = 0;
  const ValueId input = inputs[0];
  if (emitter.graph().owner(output()) == emitter.graph().owner(input)) return;
  ++conversions;
  if (is_nhwc(emitter.graph())) {
    const bool images = input == Graph::input();  // wherever they are in this step
    return emit_half_copy(emitter, images ? Tensor() : emitter.value(input), input,
                          emitter.value(output()), output(),
                          /*accumulate=*/false, emitter.graph().shape(output()));
  }
  emitter.call([from = emitter.value(input), to = emitter.value(output()),
                images = emitter.graph().shape(output())] {
    convert_layout(from, images, to, /*accumulate=*/false);
  });
}

void LayoutOp::backward(Emitter& emitter) {
  if (conversions == 0 || !emitter.graph().wants_gradient(inputs[0])) return;
  ++conversions;
  const Emitter::Target target = emitter.gradient_target(inputs[0]);
  const Tensor from = emitter.gradient(output());
  if (is_nhwc(emitter.graph())) {
    return emit_half_copy(emitter, from, output(), target.tensor, inputs[0], target.accumulate,
                          emitter.graph().shape(output()));
  }
  emitter.call([from, target, images = emitter.graph().shape(output())] {
    convert_layout(from, images, target.tensor, target.accumulate);
  });
}

double conversion_ms(const Graph& graph, ValueId value, ActivationLayout layout) {
  const Shape& images = graph.shape(value);
  if (has_one_order(images, layout)) return 0;
  const auto plain = static_cast<double>(images.numel());
  const auto nchw16c = static_cast<double>(stored_shape(images, layout).numel());
  const DeviceType device = graph.device().type;
  const double once =
      (device == DeviceType::cpu ? kCallMs : 0) +
      estimated_ms({.bytes = sizeof(float) * (plain + nchw16c)}, device, DType::f32);
  return graph.wants_gradient(value) ? 2 * once : once;
}

double operands_ms(const Graph& graph, ValueId value) {
  const Shape stored = stored_shape(graph.shape(value), ActivationLayout::nhwc);
  return estimated_ms({.bytes = kHalfOperandsBytes * static_cast<double>(stored.numel()),
                       .launches = kHalfOperandsLaunches},
                      graph.device().type, DType::f32);
}

bool has_one_order(const Shape& images, ActivationLayout layout) {
  const std::int64_t block = channel_block(images[1], layout);
  return images[2] * images[3] == 1 && images[1] % block == 0;
}

}  // namespace convscope
