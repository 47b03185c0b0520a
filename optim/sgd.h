// SPDX-License-Identifier: Apache-2.0
// sgd.h: stochastic gradient descent with momentum, dampening, Nesterov and weight decay.
//
//   d = dw + weight_decay * w
//   m = momentum * m + (1 - dampening) * d        (the first time: m = d)
//   w = w - lr * m                                (Nesterov: lr * (d + momentum * m))
//
// These are PyTorch's formulas: the learning rate is not part of m, so a change of the rate takes
// effect at once. Sources: Polyak 1964; Nesterov 1983; Sutskever et al. 2013, "On the importance of
// initialization and momentum in deep learning".
#pragma once

#include <memory>

#include "optim/optimizer.h"

namespace convscope {

class UpdateTable;

struct SgdSettings {
  double momentum = 0.0;  // 0: no momentum buffer
  double dampening = 0.0;
  bool nesterov = false;  // needs momentum > 0 and dampening = 0
};

class CONVSCOPE_API Sgd final : public Optimizer {
 public:
  Sgd(std::vector<ParameterGroup> groups, const SgdSettings& settings);
  ~Sgd() override;
  std::string kind() const override { return "sgd"; }
  void step(double lr) override;
  bool list_step(double lr, bool counts, UpdateTable& table, UpdateRule& rule) override;
  // Returns "momentum.<parameter>" per parameter, and "steps": the number of updates per parameter.
  std::vector<OptimState> state() override;

 private:
  SgdSettings settings_;
  Tensor steps_;                 // i32[parameters]
  std::vector<Tensor> momenta_;  // in the order of the groups; empty without momentum
  std::unique_ptr<UpdateTable> table_;
};

}  // namespace convscope
