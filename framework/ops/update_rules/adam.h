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

#include <cmath>

#include "framework/ops/update_rule.h"
#include "framework/ops/update_rules/settings.h"

namespace convscope {

struct AdamRule {
  using Kernels = AdamRule;
  static constexpr const char* kName = "adam";
  static constexpr const char* kDoc =
      "Adam: each weight has its own rate, from the mean and the mean square of its gradient";
  static constexpr double kLearningRate = 0.001;
  static constexpr int kStates = 2;
  static constexpr const char* kStateNames[kStates] = {"mean", "square"};

  static std::vector<OptionField> fields() {
    return {
        number_setting("beta1", 0.9, "decay rate of the mean of the gradient, from 0 to below 1",
                       0.0, kBelowOne),
        number_setting("beta2", 0.999,
                       "decay rate of the mean of the squared gradient, from 0 to below 1", 0.0,
                       kBelowOne),
        number_setting("epsilon", 1e-8,
                       "constant added to the root of the mean square, so that it is never zero",
                       1e-30, 1.0)};
  }
  explicit AdamRule(const Options& options)
      : beta1(options.number("beta1")),
        beta2(options.number("beta2")),
        epsilon(options.number("epsilon")) {}

  struct Scalars {
    double rate, decay, shrink, v_scale;
  };
  Scalars scalars(const UpdateStep& step) const {
    return {.rate = step.rate * (1 / (1 - std::pow(beta1, step.t))),
            .decay = step.weight_decay,
            .shrink = 1,
            .v_scale = 1 / std::sqrt(1 - std::pow(beta2, step.t))};
  }

  template <class Math>
  struct Step {
    using Value = typename Math::Value;
    Value decay, shrink, rate, v_scale, epsilon, beta1, beta2, rest1, rest2;
    // Computes 1 - beta in double, because 1 - 0.999f would lose four digits.
    CONVSCOPE_HOST_DEVICE_INLINE Step(const Scalars& f, const AdamRule& rule)
        : decay(Math::number(f.decay)),
          shrink(Math::number(f.shrink)),
          rate(Math::number(f.rate)),
          v_scale(Math::number(f.v_scale)),
          epsilon(Math::number(rule.epsilon)),
          beta1(Math::number(rule.beta1)),
          beta2(Math::number(rule.beta2)),
          rest1(Math::number(1 - rule.beta1)),
          rest2(Math::number(1 - rule.beta2)) {}
    CONVSCOPE_HOST_DEVICE_INLINE void run(Value& w, Value dw, Value* state) const {
      const Value d = Math::fma(decay, w, dw);
      const Value m = state[0] = Math::fma(beta1, state[0], rest1 * d);
      const Value v = state[1] = Math::fma(beta2, state[1], rest2 * d * d);
      w = Math::mul_sub(shrink, w, rate * m / Math::fma(Math::sqrt(v), v_scale, epsilon));
    }
  };

  double beta1, beta2, epsilon;
};

struct AdamWRule : AdamRule {
  static constexpr const char* kName = "adamw";
  static constexpr const char* kDoc =
      "Adam with decoupled weight decay: the decay does not pass through the mean square";
  using AdamRule::AdamRule;
  Scalars scalars(const UpdateStep& step) const {
    Scalars out = AdamRule::scalars(step);
    out.decay = 0;
    out.shrink = 1 - step.rate * step.weight_decay;
    return out;
  }
};

}  // namespace convscope
