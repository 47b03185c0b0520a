// SPDX-License-Identifier: Apache-2.0
// muon.h: Muon, which moves a weight matrix by its momentum with all singular values near 1.
//
//   m = m + (1 - momentum) * (dw - m)
//   u = dw + momentum * (m - dw)                  (without Nesterov: u = m)
//   o = 5 Newton-Schulz steps of u                (optim/orthogonalize.h)
//   w = w - lr * weight_decay * w - lr * scale * o
//
// A weight of a convolution is the matrix [K, C R S]. All other parameters, and by default the
// weights of the first and the last layer, are updated by AdamW with the rate lr * adam_lr.
// The direction o is computed before this rule runs.
//
// Sources: Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks"; Liu et
// al. 2025, "Muon is scalable for LLM training", arXiv 2502.16982 (match_rms_adamw). The formulas
// are those of torch.optim.Muon, which computes o in bf16; here it is computed in f32.
#pragma once

#include <algorithm>
#include <cmath>

#include "framework/ops/update_rule.h"
#include "framework/ops/update_rules/settings.h"

namespace convscope {

struct MuonRule {
  using Kernels = MuonRule;
  static constexpr const char* kName = "muon";
  static constexpr const char* kDoc =
      "Muon: matrices move by their orthogonalised momentum, other parameters by AdamW";
  static constexpr double kLearningRate = 0.02;
  static constexpr int kStates = 2;
  // A matrix has its momentum and its direction here, another parameter its mean and mean square.
  static constexpr const char* kStateNames[kStates] = {"mean", "square"};

  static std::vector<OptionField> fields() {
    std::vector<OptionField> out = {
        number_setting("momentum", 0.95, "decay rate of the mean gradient of a matrix, 0 to 1", 0.0,
                       1.0),
        {.name = "nesterov",
         .type = OptionType::boolean,
         .default_value = true,
         .doc = "look ahead by one momentum step"},
        {.name = "adjust_lr",
         .type = OptionType::text,
         .default_value = std::string("original"),
         .doc = "factor on the rate of a matrix: sqrt(max(1, rows / columns)), or "
                "0.2 sqrt(max(rows, columns)), which suits the rates of AdamW"},
        {.name = "end_layers",
         .type = OptionType::boolean,
         .default_value = false,
         .doc = "also orthogonalise the weights of the first and the last layer"},
        number_setting("adam_lr", 0.05,
                       "learning rate of all other parameters, as a fraction of lr", 0.0, 1e6),
        number_setting("beta1", 0.9, "AdamW: decay rate of the mean of the gradient", 0.0,
                       kBelowOne),
        number_setting("beta2", 0.95, "AdamW: decay rate of the mean of the squared gradient", 0.0,
                       kBelowOne),
        number_setting("epsilon", 1e-8, "AdamW: constant added to the root of the mean square",
                       1e-30, 1.0)};
    out[2].choices = {"original", "match_rms_adamw"};
    return out;
  }
  explicit MuonRule(const Options& options)
      : momentum(options.number("momentum")),
        adam_lr(options.number("adam_lr")),
        beta1(options.number("beta1")),
        beta2(options.number("beta2")),
        epsilon(options.number("epsilon")),
        nesterov(options.flag("nesterov")),
        end_layers(options.flag("end_layers")),
        matches_adamw(options.text("adjust_lr") == "match_rms_adamw") {}

  // Returns q in u = dw + q * (m - dw), with the momentum m before the step.
  double look_ahead() const { return nesterov ? momentum * momentum : momentum; }
  // Returns the factor on the rate of a matrix.
  double scale(std::int64_t rows, std::int64_t columns) const {
    const auto r = static_cast<double>(rows);
    const auto c = static_cast<double>(columns);
    return matches_adamw ? 0.2 * std::sqrt(std::max(r, c)) : std::sqrt(std::max(1.0, r / c));
  }

  struct Scalars {
    double rate, shrink, v_scale, is_matrix;
  };
  Scalars scalars(const UpdateStep& step) const {
    const double rate = step.rate * adam_lr;
    return {.rate = rate * (1 / (1 - std::pow(beta1, step.t))),
            .shrink = 1 - rate * step.weight_decay,
            .v_scale = 1 / std::sqrt(1 - std::pow(beta2, step.t)),
            .is_matrix = 0};
  }
  Scalars matrix_scalars(const UpdateStep& step, std::int64_t rows, std::int64_t columns) const {
    return {.rate = step.rate * scale(rows, columns),
            .shrink = 1 - step.rate * step.weight_decay,
            .v_scale = 1,
            .is_matrix = 1};
  }

  template <class Math>
  struct Step {
    using Value = typename Math::Value;
    Value rate, shrink, v_scale, epsilon, beta1, beta2, rest, rest1, rest2;
    bool is_matrix;
    CONVSCOPE_HOST_DEVICE_INLINE Step(const Scalars& f, const MuonRule& rule)
        : rate(Math::number(f.rate)),
          shrink(Math::number(f.shrink)),
          v_scale(Math::number(f.v_scale)),
          epsilon(Math::number(rule.epsilon)),
          beta1(Math::number(rule.beta1)),
          beta2(Math::number(rule.beta2)),
          rest(Math::number(1 - rule.momentum)),
          rest1(Math::number(1 - rule.beta1)),
          rest2(Math::number(1 - rule.beta2)),
          is_matrix(f.is_matrix != 0) {}
    CONVSCOPE_HOST_DEVICE_INLINE void run(Value& w, Value dw, Value* state) const {
      if (is_matrix) {
        state[0] = Math::fma(rest, dw - state[0], state[0]);
        w = Math::mul_sub(shrink, w, rate * state[1]);
        return;
      }
      const Value m = state[0] = Math::fma(beta1, state[0], rest1 * dw);
      const Value v = state[1] = Math::fma(beta2, state[1], rest2 * dw * dw);
      w = Math::mul_sub(shrink, w, rate * m / Math::fma(Math::sqrt(v), v_scale, epsilon));
    }
  };

  double momentum, adam_lr, beta1, beta2, epsilon;
  bool nesterov, end_layers, matches_adamw;
};

}  // namespace convscope
