// SPDX-License-Identifier: Apache-2.0
// adam.h: Adam, and AdamW with decoupled weight decay.
//
//   Adam:  d = dw + weight_decay * w       AdamW:  d = dw,  w = w - lr * weight_decay * w
//   m = beta1 * m + (1 - beta1) * d
//   v = beta2 * v + (1 - beta2) * d^2
//   w = w - lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)     t = 1, 2, ...
//
// Sources: Kingma, Ba 2015, "Adam: a method for stochastic optimization", arXiv 1412.6980;
// Loshchilov, Hutter 2019, "Decoupled weight decay regularization", arXiv 1711.05101.
#pragma once

#include <memory>

#include "optim/optimizer.h"

namespace convscope {

class UpdateTable;

struct AdamSettings {
  double beta1 = 0.9;    // decay of the mean of the gradient
  double beta2 = 0.999;  // decay of the mean of its square
  double epsilon = 1e-8;
  bool decoupled = false;  // AdamW: weight decay acts on w directly, not through the gradient
};

class CONVSCOPE_API Adam final : public Optimizer {
 public:
  Adam(std::vector<ParameterGroup> groups, const AdamSettings& settings);
  ~Adam() override;
  std::string kind() const override { return settings_.decoupled ? "adamw" : "adam"; }
  void step(double lr) override;
  bool list_step(double lr, bool counts, UpdateTable& table, UpdateRule& rule) override;
  // Returns "mean.<parameter>", "square.<parameter>" for each, and "steps": t per parameter.
  std::vector<OptimState> state() override;

 private:
  AdamSettings settings_;
  Tensor steps_;                 // i32[parameters]
  std::vector<Tensor> means_;    // in the order of the groups
  std::vector<Tensor> squares_;  // in the order of the groups
  std::unique_ptr<UpdateTable> table_;
};

// Returns the settings that `adam` and `adamw` share; build_adam() makes an optimiser from them.
std::vector<OptionField> adam_fields();
std::unique_ptr<Optimizer> build_adam(std::vector<ParameterGroup> groups, const Options& options,
                                      bool decoupled);

}  // namespace convscope
