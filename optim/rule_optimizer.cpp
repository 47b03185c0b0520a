// SPDX-License-Identifier: Apache-2.0
// rule_optimizer.cpp: makes an optimiser of each update rule (framework/ops/update_rule.h).
#include <convscope/update_rules.h>

#include <cmath>

#include "optim/orthogonalize.h"
#include "optim/update.h"

namespace convscope {
namespace {

// The state is that of the rule, "<name of state>.<parameter>" for each parameter, and "steps": the
// number of updates for each parameter.
template <class Rule>
class RuleOptimizer final : public Optimizer {
 public:
  RuleOptimizer(std::vector<ParameterGroup> groups, const Options& options, int index)
      : Optimizer(std::move(groups)), rule_(checked(options)), index_(index), table_(groups_) {
    if constexpr (requires { rule_.refusal(); }) {
      const std::string refusal = rule_.refusal();
      CONVSCOPE_CHECK(refusal.empty(), Rule::kName, refusal);
    }
    if constexpr (requires { rule_.states(); }) states_ = static_cast<std::size_t>(rule_.states());
    std::int64_t count = 0;
    for (const ParameterGroup& group : groups_) {
      for (const OptimParameter& parameter : group.parameters) {
        const Tensor& w = parameter.variable.value();
        for (std::size_t k = 0; k < states_; ++k) {
          tensors_.push_back({cat(Rule::kStateNames[k], ".", parameter.name),
                              Tensor::zeros(w.shape(), w.dtype(), w.device())});
        }
        if (is_matrix(parameter)) {
          const OptimState* const own = tensors_.data() + tensors_.size() - states_;
          orthogonalizer_.add(own[0].tensor, own[1].tensor);
          matrices_.push_back(parameter.variable);
        }
        ++count;
      }
    }
    tensors_.push_back({"steps", Tensor::zeros(Shape{count}, DType::i32)});
  }

  std::string kind() const override { return Rule::kName; }

  bool list_step(double lr, bool counts, UpdateTable& table) override {
    CONVSCOPE_CHECK(std::isfinite(lr) && lr >= 0, Rule::kName,
                    "expected a learning rate >= 0, got ", lr);
    std::int32_t* steps = tensors_.back().tensor.data<std::int32_t>();
    const OptimState* state = tensors_.data();
    table.clear({.index = index_, .settings = &rule_});
    // Usually, all parameters of a group have the same scalars.
    UpdateStep last;
    UpdateScalars scalars;
    for (const ParameterGroup& group : groups_) {
      for (const OptimParameter& parameter : group.parameters) {
        const OptimState* const own = state;
        std::int32_t& done = *steps++;
        state += states_;
        UpdateRow* row = table.add(parameter.variable);
        if (row == nullptr) continue;
        const UpdateStep step{
            .t = done + 1, .rate = lr * group.lr_scale, .weight_decay = group.weight_decay};
        if (step != last) scalars.set(rule_.scalars(step));
        last = step;
        row->scalars = scalars;
        if constexpr (kHasMatrices) {
          const Tensor& w = parameter.variable.value();
          if (is_matrix(parameter)) {
            row->scalars.set(rule_.matrix_scalars(step, w.dim(0), w.numel() / w.dim(0)));
          }
        }
        for (std::size_t k = 0; k < states_; ++k) row->state[k] = own[k].tensor.raw_data();
        if (counts) done = step.t;
      }
    }
    return true;
  }

  bool has_directions() const override { return !matrices_.empty(); }

  void queue_directions() override {
    if constexpr (kHasMatrices) {
      for (std::size_t i = 0; i < matrices_.size(); ++i) {
        const Tensor& dw = matrices_[i].state()->grad;
        if (dw.defined()) orthogonalizer_.run(i, dw.raw_data(), rule_.look_ahead());
      }
    }
  }

  void step(double lr) override {
    list_step(lr, /*counts=*/true, table_);
    queue_directions();
    if (!table_.rows().empty()) update_kernel.get(table_.device())(table_);
  }

  std::vector<OptimState> state() override { return tensors_; }

 private:
  static constexpr bool kHasMatrices = requires(const Rule& rule, const UpdateStep& step) {
    rule.matrix_scalars(step, 1, 1);
  };

  // Returns whether a parameter moves by an orthogonalised direction (orthogonalize.h).
  bool is_matrix(const OptimParameter& parameter) const {
    if constexpr (kHasMatrices) {
      const Tensor& w = parameter.variable.value();
      return w.rank() >= 2 && w.numel() > 0 && (!parameter.is_end || rule_.end_layers);
    }
    return false;
  }

  static const Options& checked(const Options& options) {
    for (const OptionField& field : Rule::fields()) {
      const std::string refusal = refusal_of(field, options.get(field.name));
      CONVSCOPE_CHECK(refusal.empty(), Rule::kName, field.name, ": ", refusal);
    }
    return options;
  }

  static_assert(sizeof(typename Rule::Scalars) <= kMovesSlowWeights * sizeof(double));
  static_assert(Rule::kStates <= kMaxUpdateStates, "kMaxUpdateStates is too small for this rule");
  Rule rule_;
  int index_;
  std::size_t states_ = Rule::kStates;
  std::vector<OptimState> tensors_;  // `states_` tensors for each parameter; then the counts
  std::vector<Variable> matrices_;
  Orthogonalizer orthogonalizer_;
  UpdateTable table_;
};

template <class... Rules>
bool register_rules(UpdateRuleList<Rules...>) {
  int index = 0;
  const auto add = [&]<class Rule>(const Rule*) {
    const auto build = [at = index++](std::vector<ParameterGroup> groups, const Options& options) {
      return std::make_unique<RuleOptimizer<Rule>>(std::move(groups), options, at);
    };
    optimizer_types().add(Rule::kName, {Rule::kDoc, Rule::fields(), build, Rule::kLearningRate},
                          __FILE__);
  };
  (add(static_cast<const Rules*>(nullptr)), ...);
  return true;
}
[[maybe_unused]] const bool registered_rules = register_rules(UpdateRules{});

}  // namespace
}  // namespace convscope
