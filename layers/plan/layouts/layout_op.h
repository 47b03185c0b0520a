// SPDX-License-Identifier: Apache-2.0
// layout_op.h: copies a value to another layout or type in a compiled step, and its gradient back.
#pragma once

#include "framework/graph/emitter.h"

namespace convscope {

// Input and output hold the same numbers: either one value in two layouts (Graph::add_stored),
// or a value in f32 NCHW and its copy in fp16, bf16 or f32 NHWC.
class CONVSCOPE_API LayoutOp final : public Operation {
 public:
  explicit LayoutOp(ActivationLayout to, DType type = DType::f32)
      : Operation("layout"), to_(to), type_(type) {}
  std::string text() const override;
  void forward(Emitter& emitter) override;
  void backward(Emitter& emitter) override;

 private:
  bool is_nhwc(const Graph& graph) const;

  ActivationLayout to_;
  DType type_;
};

// Returns the milliseconds per step of copies of `value` to another layout, gradients included.
CONVSCOPE_API double conversion_ms(const Graph& graph, ValueId value,
                                   ActivationLayout layout = ActivationLayout::nchw16c);
// Returns the milliseconds of a pass that converts an f32 NHWC image, or its gradient, to fp16
// operands (half_operand_calls.h).
CONVSCOPE_API double operands_ms(const Graph& graph, ValueId value);
// Returns whether the elements have the same order in `layout` and in NCHW: images of one pixel
// whose channels fill whole blocks.
CONVSCOPE_API bool has_one_order(const Shape& images,
                                 ActivationLayout layout = ActivationLayout::nchw16c);

}  // namespace convscope
