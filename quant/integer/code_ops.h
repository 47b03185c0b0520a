// SPDX-License-Identifier: Apache-2.0
// code_ops.h: the operations of an integer graph that are not products: rounding f32 to codes,
// converting codes back to f32, and max-pools on codes.
#pragma once

#include "layers/pool2d/pool2d.h"
#include "quant/integer/code_format.h"

namespace convscope {

// Returns whether the pool has 2x2 windows at stride 2 without padding.
bool halves(const Pool2dWindow& window);

// Returns the shape of the codes. Images have NCHW16c codes; the inputs [N,F] of a linear layer
// have codes [N,F,1,1].
CONVSCOPE_API Shape code_shape(const Shape& shape);

// Returns the format of an operation that reads any layout and whose images have the layout `own`.
inline std::optional<Format> codes_format(ActivationLayout layout, ActivationLayout own) {
  if (layout != own) return std::nullopt;
  return Format{.any_input = true};
}

// inputs: f32 in any layout, the step.
class QuantizeOp final : public Operation {
 public:
  static constexpr std::string_view kKind = "quantise";
  explicit QuantizeOp(const CodeFormat& format) : Operation("quantise"), format_(format) {}
  const CodeFormat& format() const { return format_; }
  std::string text() const override { return cat("quantise to ", name_of(format_.dtype())); }
  std::optional<Format> format(const Graph&, ActivationLayout layout) const override {
    return codes_format(layout, ActivationLayout::nchw);
  }
  void forward(Emitter& emitter) override;
  void backward(Emitter&) override {}

 private:
  CodeFormat format_;
};

// Inputs: codes, step size. The output has the same shape as that of the fake quantiser.
class DequantizeOp final : public Operation {
 public:
  explicit DequantizeOp(const CodeFormat& format) : Operation("dequantise"), format_(format) {}
  std::string text() const override { return cat("turn ", name_of(format_.dtype()), " into f32"); }
  std::optional<Format> format(const Graph&, ActivationLayout layout) const override {
    std::optional<Format> out = same_in_both(layout);
    if (out) out->any_input = true;
    return out;
  }
  void forward(Emitter& emitter) override;
  void backward(Emitter&) override {}

 private:
  CodeFormat format_;
};

// Input: codes. Rounding keeps the order of numbers, so the largest code is the code of the
// maximum.
class CodesPoolOp final : public Operation {
 public:
  static constexpr std::string_view kKind = "max_pool2d on codes";
  CodesPoolOp(const Pool2dWindow& window, DType type)
      : Operation("max_pool2d on codes"), window_(window), type_(type) {}
  const Pool2dWindow& window() const { return window_; }
  std::string text() const override { return cat("max_pool2d on ", name_of(type_)); }
  std::optional<Format> format(const Graph&, ActivationLayout layout) const override {
    return codes_format(layout, ActivationLayout::nchw);
  }
  void forward(Emitter& emitter) override;
  void backward(Emitter&) override {}

 private:
  Pool2dWindow window_;
  DType type_;
};

}  // namespace convscope
