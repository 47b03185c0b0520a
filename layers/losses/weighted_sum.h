// SPDX-License-Identifier: Apache-2.0
// weighted_sum.h: a weighted sum of losses, such as cross-entropy and Dice.
//
// Formula   loss = sum over i of weight[i] loss[i]
// Backward  dx = sum over i of weight[i] dx[i] * dloss; saved: dx / dloss
// Usage     in a config: train: {loss: [{type: cross_entropy, weight: 0.5}, {type: dice}]}
#pragma once

#include <memory>
#include <vector>

#include "layers/losses/loss.h"

namespace convscope {

class WeightedSum final : public LossOperation {
 public:
  struct Term {
    std::unique_ptr<LossOperation> loss;
    double weight = 1;
  };
  explicit WeightedSum(std::vector<Term> terms);

  std::string text() const override;
  void prepare(const Shape& rows, DType dtype, Device device) override;
  Shape terms_shape(const Shape& x) const override;
  Shape scratch_shape(const Shape& x) const override;
  void run(const Forward& a) const override;
  void run(const Backward& a) const override;

 private:
  std::vector<Term> terms_;
};

}  // namespace convscope
