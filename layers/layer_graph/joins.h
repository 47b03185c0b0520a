// SPDX-License-Identifier: Apache-2.0
// joins.h: layers that make one result of several inputs: add, mul, concat.
//
// Shapes      add, mul: inputs with the same number of axes whose sizes are equal or 1, as in NumPy
//             concat: inputs that differ in the size of one axis only
// Formula     add  y = x_0 + x_1 + ..;  mul  y = x_0 x_1 ..;  concat  the inputs in order
// Parameters  axis  of concat, default 1 (channels)
// Usage       {type: add, from: [c1, c3]}
#pragma once

#include <string>
#include <utility>

#include "layers/module.h"

namespace convscope {

class CONVSCOPE_API Join : public MultiModule {
 public:
  std::string kind() const override { return kind_; }

 protected:
  Join(std::string kind, std::size_t inputs);

 private:
  std::string kind_;
};

class CONVSCOPE_API Concat final : public Join {
 public:
  Concat(int axis, std::size_t inputs) : Join("concat", inputs), axis_(axis) {}
  int axis() const { return axis_; }

  Variables forward(const Variables& inputs) override;
  Shapes output_shapes(const Shapes& inputs) const override;

 private:
  int axis_;
};

}  // namespace convscope
