// SPDX-License-Identifier: Apache-2.0
// activation.h: elementwise activations; no parameters.
//
// Shapes    x [any] -> y, the same shape
// Formula   relu     max(x, 0)             (NaN stays NaN, slope 0 at 0)
//           relu6    min(max(x, 0), 6)     (the same; slope 0 at 6 too)
//           tanh     tanh(x)
//           sigmoid  1 / (1 + exp(-x))
// Usage     Activation r1("relu");  y = r1.forward(x);
// Paper     X. Glorot, A. Bordes, Y. Bengio: Deep Sparse Rectifier Neural Networks, AISTATS 2011;
//           relu6: A. Krizhevsky: Convolutional Deep Belief Networks on CIFAR-10, 2010
#pragma once

#include <string>

#include "layers/module.h"

namespace convscope {

class CONVSCOPE_API Activation final : public Module {
 public:
  explicit Activation(const std::string& kind);  // "relu", "relu6", "tanh", "sigmoid"
  std::string kind() const override { return kind_; }
  Variable forward(const Variable& x) override { return function_(x); }
  Shape output_shape(const Shape& input) const override { return input; }

 private:
  std::string kind_;
  Variable (*function_)(const Variable&);
};

}  // namespace convscope
