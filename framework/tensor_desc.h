// SPDX-License-Identifier: Apache-2.0
// tensor_desc.h: the description of a tensor: its shape, element type and layout in memory.
// Operations, graphs and algorithms share it.
#pragma once

#include "framework/activation_layout.h"
#include "framework/dtype.h"
#include "framework/shape.h"

namespace convscope {

struct TensorDesc {
  Shape shape;  // that users see: [N,C,H,W], whatever the layout
  // f32 or f64; fp16 or bf16 for images in NHWC; u8 or i8 for the codes of a quantised value, whose
  // step size is a value of the graph (quant/integer/).
  DType dtype = DType::f32;
  ActivationLayout layout = ActivationLayout::nchw;

  std::string str() const { return cat(name_of(dtype), shape); }                 // "f32[2,3]"
  Shape stored_shape() const { return convscope::stored_shape(shape, layout); }  // in memory
};

}  // namespace convscope
