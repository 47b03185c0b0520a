// SPDX-License-Identifier: Apache-2.0
// max_pool_op.h: max_pool2d in a planned step.
#pragma once

#include "layers/plan/plan_builder.h"
#include "layers/pool2d/pool2d.h"

namespace convscope {

class CONVSCOPE_API MaxPoolOp final : public PlanOp {
 public:
  explicit MaxPoolOp(const Pool2dWindow& window) : window_(window) {}
  const Pool2dWindow& window() const { return window_; }
  std::string text() const override { return "max_pool2d"; }
  void forward(PlanBuilder& builder) override;
  void backward(PlanBuilder& builder) override;

 private:
  Pool2dWindow window_;
  Slot taps_ = kNoSlot;  // which element of each window was the largest
};

}  // namespace convscope
