// SPDX-License-Identifier: Apache-2.0
// quantize_op.h: the operations between f32 and integer codes in an inference graph. Codes are in
// NCHW16c; inputs [N,F] of a linear layer are images [N,F,1,1]. The scale is a value of the graph
// (TensorDesc::quantization).
#pragma once

#include "framework/graph/emitter.h"

namespace convscope {

// Returns the shape of the codes of a value [N,C,H,W] or [N,F].
CONVSCOPE_API Shape code_shape(const Shape& shape);

// Returns the format of an operation that reads any layout and whose images have the layout `own`.
inline std::optional<Format> codes_format(ActivationLayout layout, ActivationLayout own) {
  if (layout != own) return std::nullopt;
  return Format{.any_input = true};
}

// Rounds to codes clip(round(x / scale), low, high), of type i8 if `low` is negative, else u8.
// Inputs: x, f32 in any layout; the scale, f64 [1].
class CONVSCOPE_API QuantizeOp final : public Operation {
 public:
  static constexpr std::string_view kKind = "quantise";
  QuantizeOp(std::int32_t low, std::int32_t high) : Operation("quantise"), low_(low), high_(high) {}
  std::string text() const override { return cat("quantise to ", name_of(type())); }
  TensorDesc bind(Graph& graph) override;
  std::optional<Format> format(const Graph&, ActivationLayout layout) const override {
    return codes_format(layout, ActivationLayout::nchw);
  }
  void forward(Emitter& emitter) override;
  void backward(Emitter&) override {}

 private:
  DType type() const { return low_ < 0 ? DType::i8 : DType::u8; }

  std::int32_t low_, high_;
};

// Converts codes to f32. Inputs: codes, their scale. Output: [N,C,H,W] or [N,F].
class CONVSCOPE_API DequantizeOp final : public Operation {
 public:
  explicit DequantizeOp(DType type) : Operation("dequantise"), type_(type) {}
  std::string text() const override { return cat("turn ", name_of(type_), " into f32"); }
  std::optional<Format> format(const Graph&, ActivationLayout) const override {
    return Format{.any_input = true};
  }
  void forward(Emitter& emitter) override;
  void backward(Emitter&) override {}

 private:
  DType type_;
};

}  // namespace convscope
