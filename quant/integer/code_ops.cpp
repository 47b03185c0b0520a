// SPDX-License-Identifier: Apache-2.0
// code_ops.cpp: operations on integer codes: rounds f32 to codes, converts codes back to f32, and
// takes the largest code of each pooling window.
#include "quant/integer/code_ops.h"

#include <algorithm>

#include "framework/ops/codes/codes.h"

namespace convscope {

bool halves(const Pool2dWindow& window) {
  return window.kernel_h == 2 && window.kernel_w == 2 && window.stride_h == 2 &&
         window.stride_w == 2 && window.pad_h == 0 && window.pad_w == 0 && !window.ceil_mode;
}

Shape code_shape(const Shape& shape) {
  return shape.rank() == 2 ? Shape{shape[0], shape[1], 1, 1} : shape;
}

void QuantizeOp::forward(Emitter& emitter) {
  Slot step = kNoSlot;
  emitter.prologue([&] { step = emit_steps(emitter, format_); });
  const ValueId x = inputs[0];
  const Shape& shape = emitter.graph().shape(output());
  const bool is_input = x == Graph::input();
  const RoundedImages images{.images = shape[0],
                             .channels = shape[1],
                             .pixels = shape[2] * shape[3],
                             .in_nchw16c = emitter.graph().layout(x) != ActivationLayout::nchw,
                             .low = format_.low(),
                             .high = format_.high()};
  emitter.call([run = round_images_kernel.get(emitter.device()), images, is_input,
                given = emitter.state(), from = is_input ? Tensor() : emitter.value(x),
                to = emitter.value(output()), step = emitter.use(step)] {
    RoundedImages now = images;
    now.from = static_cast<const float*>(is_input ? given->images : from.raw_data());
    now.step = step.data<double>();
    now.to = static_cast<std::uint8_t*>(to.raw_data());
    run(now);
  });
}

void DequantizeOp::forward(Emitter& emitter) {
  Slot step = kNoSlot;
  emitter.prologue([&] { step = emit_steps(emitter, format_); });
  const Shape& shape = emitter.graph().shape(inputs[0]);
  const RealImages images{.images = shape[0],
                          .channels = shape[1],
                          .pixels = shape[2] * shape[3],
                          .in_nchw16c = emitter.graph().layout(output()) != ActivationLayout::nchw,
                          .is_signed = format_.dtype() == DType::i8};
  emitter.call([run = real_images_kernel.get(emitter.device()), images,
                from = emitter.value(inputs[0]), to = emitter.value(output()),
                step = emitter.use(step)] {
    RealImages now = images;
    now.from = static_cast<const std::uint8_t*>(from.raw_data());
    now.step = step.data<double>();
    now.to = to.data<float>();
    run(now);
  });
}

void CodesPoolOp::forward(Emitter& emitter) {
  const Shape& from = emitter.graph().shape(inputs[0]);
  const Shape& to = emitter.graph().shape(output());
  const CodesPool pool{.planes = from[0] * ceil_div(from[1], kChannelBlock),
                       .h = from[2],
                       .w = from[3],
                       .p = to[2],
                       .q = to[3],
                       .kernel_h = window_.kernel_h,
                       .kernel_w = window_.kernel_w,
                       .stride_h = window_.stride_h,
                       .stride_w = window_.stride_w,
                       .pad_h = window_.pad_h,
                       .pad_w = window_.pad_w,
                       .is_signed = type_ == DType::i8};
  emitter.call([run = pool_codes_kernel.get(emitter.device()), pool, x = emitter.value(inputs[0]),
                y = emitter.value(output())] {
    CodesPool now = pool;
    now.from = static_cast<const std::uint8_t*>(x.raw_data());
    now.to = static_cast<std::uint8_t*>(y.raw_data());
    run(now);
  });
}

}  // namespace convscope
