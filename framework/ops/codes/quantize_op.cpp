// SPDX-License-Identifier: Apache-2.0
// quantize_op.cpp: rounds f32 to codes, and converts codes to f32, in an inference graph.
#include "framework/ops/codes/quantize_op.h"

#include "framework/ops/codes/codes.h"

namespace convscope {

Shape code_shape(const Shape& shape) {
  return shape.rank() == 2 ? Shape{shape[0], shape[1], 1, 1} : shape;
}

TensorDesc QuantizeOp::bind(Graph& graph) {
  return {.shape = code_shape(graph.shape(inputs[0])),
          .dtype = type(),
          .layout = ActivationLayout::nchw16c,
          .quantization = QuantParams{.scale = inputs[1], .low = low_, .high = high_}};
}

void QuantizeOp::forward(Emitter& emitter) {
  const ValueId x = inputs[0];
  const Shape& shape = emitter.graph().shape(output());
  const bool is_input = x == Graph::input();
  const RoundedImages images{.images = shape[0],
                             .channels = shape[1],
                             .pixels = shape[2] * shape[3],
                             .in_nchw16c = emitter.graph().layout(x) != ActivationLayout::nchw,
                             .low = low_,
                             .high = high_};
  emitter.call([run = round_images_kernel.get(emitter.device()), images, is_input,
                given = emitter.state(), from = is_input ? Tensor() : emitter.value(x),
                to = emitter.value(output()), scale = emitter.value(inputs[1])] {
    RoundedImages now = images;
    now.from = static_cast<const float*>(is_input ? given->images : from.raw_data());
    now.step = scale.data<double>();
    now.to = static_cast<std::uint8_t*>(to.raw_data());
    run(now);
  });
}

void DequantizeOp::forward(Emitter& emitter) {
  const Shape& shape = emitter.graph().shape(inputs[0]);
  const RealImages images{.images = shape[0],
                          .channels = shape[1],
                          .pixels = shape[2] * shape[3],
                          .in_nchw16c = emitter.graph().layout(output()) != ActivationLayout::nchw,
                          .is_signed = type_ == DType::i8};
  emitter.call([run = real_images_kernel.get(emitter.device()), images,
                from = emitter.value(inputs[0]), to = emitter.value(output()),
                scale = emitter.value(inputs[1])] {
    RealImages now = images;
    now.from = static_cast<const std::uint8_t*>(from.raw_data());
    now.step = scale.data<double>();
    now.to = to.data<float>();
    run(now);
  });
}

}  // namespace convscope
