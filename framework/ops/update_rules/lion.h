// SPDX-License-Identifier: Apache-2.0
// lion.h: Lion, which moves each weight by the learning rate, up or down.
//
//   u = sign(beta1 * m + (1 - beta1) * dw)
//   m = beta2 * m + (1 - beta2) * dw
//   w = w - lr * weight_decay * w - lr * u
//
// Source: Chen et al. 2023, "Symbolic discovery of optimization algorithms", arXiv 2302.06675.
#pragma once

#include "framework/ops/update_rule.h"
#include "framework/ops/update_rules/settings.h"

namespace convscope {

struct LionRule {
  using Kernels = LionRule;
  static constexpr const char* kName = "lion";
  static constexpr const char* kDoc =
      "Lion: every weight moves by the learning rate, in the direction of a mean gradient";
  static constexpr double kLearningRate = 0.0003;
  static constexpr int kStates = 1;
  static constexpr const char* kStateNames[kStates] = {"momentum"};

  static std::vector<OptionField> fields() {
    return {number_setting("beta1", 0.9,
                           "weight of the momentum in the direction of a step, from 0 to below 1",
                           0.0, kBelowOne),
            number_setting("beta2", 0.99, "decay rate of the momentum, from 0 to below 1", 0.0,
                           kBelowOne)};
  }
  explicit LionRule(const Options& options)
      : beta1(options.number("beta1")), beta2(options.number("beta2")) {}

  struct Scalars {
    double rate, shrink;
  };
  Scalars scalars(const UpdateStep& step) const {
    return {.rate = step.rate, .shrink = 1 - step.rate * step.weight_decay};
  }

  template <class Math>
  struct Step {
    using Value = typename Math::Value;
    Value rate, shrink, beta1, beta2, rest1, rest2;
    CONVSCOPE_HOST_DEVICE_INLINE Step(const Scalars& f, const LionRule& rule)
        : rate(Math::number(f.rate)),
          shrink(Math::number(f.shrink)),
          beta1(Math::number(rule.beta1)),
          beta2(Math::number(rule.beta2)),
          rest1(Math::number(1 - rule.beta1)),
          rest2(Math::number(1 - rule.beta2)) {}
    CONVSCOPE_HOST_DEVICE_INLINE void run(Value& w, Value dw, Value* state) const {
      const Value u = Math::sign(Math::fma(beta1, state[0], rest1 * dw));
      state[0] = Math::fma(beta2, state[0], rest2 * dw);
      w = Math::mul_sub(shrink, w, rate * u);
    }
  };

  double beta1, beta2;
};

}  // namespace convscope
