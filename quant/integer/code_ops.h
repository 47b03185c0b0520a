// SPDX-License-Identifier: Apache-2.0
// code_ops.h: the operations of an integer graph that are not products: rounding f32 to codes,
// converting codes back to f32, and max-pools on codes.
#pragma once

#include "layers/pool2d/pool2d.h"
#include "quant/integer/code_format.h"

namespace convscope {

// Returns whether the pool has 2x2 windows at stride 2 without padding.
bool halves(const Pool2dWindow& window);
// Returns the only operation that reads `value`, or null if no operation or several operations read
// it.
const PlanOp* only_reader(const Graph& graph, ValueId value);

// Returns the shape of the codes. Images have NCHW16c codes; the inputs [N,F] of a linear layer
// have codes [N,F,1,1].
CONVSCOPE_API Shape code_shape(const Shape& shape);

// inputs: f32 in any layout, the step.
class QuantizeOp final : public PlanOp {
 public:
  explicit QuantizeOp(const CodeFormat& format) : format_(format) {}
  const CodeFormat& format() const { return format_; }
  std::string text() const override { return cat("quantise to ", name_of(format_.dtype())); }
  bool reads_any_layout() const override { return true; }
  void forward(Emitter& builder) override;
  void backward(Emitter&) override {}

 private:
  CodeFormat format_;
};

// Inputs: codes, step size. The output has the same shape as that of the fake quantiser.
class DequantizeOp final : public PlanOp {
 public:
  explicit DequantizeOp(const CodeFormat& format) : format_(format) {}
  std::string text() const override { return cat("turn ", name_of(format_.dtype()), " into f32"); }
  bool reads_any_layout() const override { return true; }
  std::optional<double> layout_ms(const Graph&, ActivationLayout layout) const override {
    return same_in_both(layout);
  }
  void forward(Emitter& builder) override;
  void backward(Emitter&) override {}

 private:
  CodeFormat format_;
};

// Input: codes. Rounding keeps the order of numbers, so the largest code is the code of the
// maximum.
class CodesPoolOp final : public PlanOp {
 public:
  CodesPoolOp(const Pool2dWindow& window, DType type) : window_(window), type_(type) {}
  const Pool2dWindow& window() const { return window_; }
  std::string text() const override { return cat("max_pool2d on ", name_of(type_)); }
  bool reads_any_layout() const override { return true; }
  void forward(Emitter& builder) override;
  void backward(Emitter&) override {}

 private:
  Pool2dWindow window_;
  DType type_;
};

}  // namespace convscope
