// SPDX-License-Identifier: Apache-2.0
// sgd.h: SGD (stochastic gradient descent) with momentum, dampening, Nesterov and weight decay, and
// SGDW with decoupled weight decay.
//
//   SGD:  d = dw + weight_decay * w        SGDW:  d = dw,  w = w - lr * weight_decay * w
//   m = momentum * m + (1 - dampening) * d        (the first time: m = d)
//   w = w - lr * m                                (Nesterov: lr * (d + momentum * m))
//
// These are PyTorch's formulas: the learning rate is not part of m, so a change of the rate takes
// effect at once. Sources: Polyak 1964; Nesterov 1983; Sutskever et al. 2013, "On the importance of
// initialization and momentum in deep learning"; Loshchilov, Hutter 2019, "Decoupled weight decay
// regularization", arXiv 1711.05101 (SGDW).
#pragma once

#include "framework/ops/update_rule.h"
#include "framework/ops/update_rules/settings.h"

namespace convscope {

struct SgdRule {
  using Kernels = SgdRule;
  static constexpr const char* kName = "sgd";
  static constexpr const char* kDoc = "stochastic gradient descent with momentum";
  static constexpr double kLearningRate = 0.05;
  static constexpr int kStates = 1;
  static constexpr const char* kStateNames[kStates] = {"momentum"};

  static std::vector<OptionField> fields() {
    return {number_setting("momentum", 0.9,
                           "fraction of the last update direction that is kept, 0 to 1", 0.0, 1.0),
            number_setting("dampening", 0.0,
                           "the gradient enters the momentum with weight 1 - dampening, 0 to 1",
                           0.0, 1.0),
            {.name = "nesterov",
             .type = OptionType::boolean,
             .default_value = false,
             .doc = "look ahead by one momentum step; needs momentum > 0 and dampening 0"}};
  }
  explicit SgdRule(const Options& options)
      : momentum(options.number("momentum")),
        dampening(options.number("dampening")),
        nesterov(options.flag("nesterov")),
        has_momentum(momentum > 0) {}
  std::string refusal() const {
    if (!nesterov || (has_momentum && dampening == 0)) return "";
    return cat("expected momentum > 0 and dampening 0 because nesterov is on, got momentum ",
               momentum, " and dampening ", dampening);
  }
  int states() const { return has_momentum ? 1 : 0; }

  struct Scalars {
    double rate, decay, shrink, keep, gain;
  };
  Scalars scalars(const UpdateStep& step) const {
    const bool first = step.t == 1;
    return {.rate = step.rate,
            .decay = step.weight_decay,
            .shrink = 1,
            .keep = first ? 0.0 : momentum,
            .gain = first ? 1.0 : 1.0 - dampening};
  }

  template <class Math>
  struct Step {
    using Value = typename Math::Value;
    Value decay, shrink, minus_rate, keep, gain, momentum;
    bool has_momentum, nesterov;
    CONVSCOPE_HOST_DEVICE_INLINE Step(const Scalars& f, const SgdRule& rule)
        : decay(Math::number(f.decay)),
          shrink(Math::number(f.shrink)),
          minus_rate(Math::number(-f.rate)),
          keep(Math::number(f.keep)),
          gain(Math::number(f.gain)),
          momentum(Math::number(rule.momentum)),
          has_momentum(rule.has_momentum),
          nesterov(rule.nesterov) {}
    CONVSCOPE_HOST_DEVICE_INLINE void run(Value& w, Value dw, Value* state) const {
      Value d = Math::fma(decay, w, dw);
      if (has_momentum) {
        const Value m = state[0] = Math::fma(keep, state[0], gain * d);
        d = nesterov ? Math::fma(momentum, m, d) : m;
      }
      w = Math::fma(minus_rate, d, shrink * w);
    }
  };

  double momentum, dampening;
  bool nesterov, has_momentum;
};

struct SgdWRule : SgdRule {
  static constexpr const char* kName = "sgdw";
  static constexpr const char* kDoc =
      "SGD with decoupled weight decay: the decay does not pass through the momentum";
  using SgdRule::SgdRule;
  Scalars scalars(const UpdateStep& step) const {
    Scalars out = SgdRule::scalars(step);
    out.decay = 0;
    out.shrink = 1 - step.rate * step.weight_decay;
    return out;
  }
};

}  // namespace convscope
