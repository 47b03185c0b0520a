// SPDX-License-Identifier: Apache-2.0
// code_ops.h: what a plan on integers does beside its products: round f32 to codes, turn codes
// back, and the largest code of each window.
#pragma once

#include "layers/pool2d/pool2d.h"
#include "quant/integer/code_format.h"

namespace convscope {

// 2x2 windows at stride 2 without padding.
bool halves(const Pool2dWindow& window);
// The only operation that reads `value`; null: others or none do.
const PlanOp* only_reader(const PlanGraph& graph, ValueId value);

// Images of codes are values [N,C,H,W] in blocks; the inputs of a linear layer [N,F] are [N,F,1,1].
CONVSCOPE_API Shape code_shape(const Shape& shape);

// inputs: f32 in any layout, the step.
class QuantizeOp final : public PlanOp {
 public:
  explicit QuantizeOp(const CodeFormat& format) : format_(format) {}
  const CodeFormat& format() const { return format_; }
  std::string text() const override { return cat("quantise to ", name_of(format_.dtype())); }
  bool reads_any_layout() const override { return true; }
  void forward(PlanBuilder& builder) override;
  void backward(PlanBuilder&) override {}

 private:
  CodeFormat format_;
};

// inputs: codes, the step. The output has the shape that the fake quantiser's had.
class DequantizeOp final : public PlanOp {
 public:
  explicit DequantizeOp(const CodeFormat& format) : format_(format) {}
  std::string text() const override { return cat("turn ", name_of(format_.dtype()), " into f32"); }
  bool reads_any_layout() const override { return true; }
  std::optional<double> layout_ms(const PlanGraph&, ActivationLayout layout) const override {
    return same_in_both(layout);
  }
  void forward(PlanBuilder& builder) override;
  void backward(PlanBuilder&) override {}

 private:
  CodeFormat format_;
};

// inputs: codes. max(codes) is the code of the maximum, because rounding keeps the order.
class CodesPoolOp final : public PlanOp {
 public:
  CodesPoolOp(const Pool2dWindow& window, DType type) : window_(window), type_(type) {}
  const Pool2dWindow& window() const { return window_; }
  std::string text() const override { return cat("max_pool2d on ", name_of(type_)); }
  bool reads_any_layout() const override { return true; }
  void forward(PlanBuilder& builder) override;
  void backward(PlanBuilder&) override {}

 private:
  Pool2dWindow window_;
  DType type_;
};

}  // namespace convscope
