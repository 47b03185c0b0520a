// SPDX-License-Identifier: Apache-2.0
// optimizer.cpp: parameter groups, and the interface of all optimisers.
#include "optim/optimizer.h"

#include <cmath>
#include <map>
#include <set>

namespace convscope {

Registry<OptimizerType>& optimizer_types() {
  static Registry<OptimizerType> table("optimizer");
  return table;
}

std::unique_ptr<Optimizer> make_optimizer(std::string_view name, std::vector<ParameterGroup> groups,
                                          const std::map<std::string, OptionValue>& settings) {
  const OptimizerType& type = optimizer_types().get(name);
  Options options(type.fields);
  for (const auto& [key, value] : settings) {
    options.get(key);  // throws when there is no such setting
    options.set(key, value);
  }
  return type.build(std::move(groups), options);
}

Optimizer::~Optimizer() = default;

bool Optimizer::list_step(double, bool, UpdateTable&) { return false; }

Optimizer::Optimizer(std::vector<ParameterGroup> groups) : groups_(std::move(groups)) {
  std::set<std::string> names;
  std::set<const Variable::State*> seen;
  for (const ParameterGroup& group : groups_) {
    CONVSCOPE_CHECK(std::isfinite(group.lr_scale) && group.lr_scale >= 0, "optimizer",
                    "expected lr_scale >= 0 in group '", group.name, "', got ", group.lr_scale);
    CONVSCOPE_CHECK(std::isfinite(group.weight_decay) && group.weight_decay >= 0, "optimizer",
                    "expected weight_decay >= 0 in group '", group.name, "', got ",
                    group.weight_decay);
    for (const OptimParameter& parameter : group.parameters) {
      const Variable& w = parameter.variable;
      CONVSCOPE_CHECK(w.defined() && w.is_leaf() && w.requires_grad(), "optimizer", "expected '",
                      parameter.name,
                      "' to be a leaf that requires a gradient, because only those receive one");
      CONVSCOPE_CHECK(w.dtype() == DType::f32 || w.dtype() == DType::f64, "optimizer", "expected '",
                      parameter.name, "' to be f32 or f64, got ", w.value());
      CONVSCOPE_CHECK(seen.insert(w.state()).second && names.insert(parameter.name).second,
                      "optimizer", "expected each parameter once, got '", parameter.name,
                      "' again in group '", group.name, "'");
    }
  }
  CONVSCOPE_CHECK(!seen.empty(), "optimizer", "expected at least one parameter, got none");
}

void check_groups_cover(const std::vector<ParameterGroup>& groups,
                        const std::vector<OptimParameter>& all) {
  std::map<const Variable::State*, int> uses;
  for (const ParameterGroup& group : groups) {
    for (const OptimParameter& parameter : group.parameters) ++uses[parameter.variable.state()];
  }
  std::vector<std::string> in_none;
  std::vector<std::string> in_several;
  for (const OptimParameter& parameter : all) {
    const int count = uses[parameter.variable.state()];
    if (count == 0) in_none.push_back(parameter.name);
    if (count > 1) in_several.push_back(parameter.name);
  }
  if (in_none.empty() && in_several.empty()) return;
  std::string got;
  if (!in_none.empty()) got += cat("in no group: ", join(in_none));
  if (!in_none.empty() && !in_several.empty()) got += "; ";
  if (!in_several.empty()) got += cat("in more than one: ", join(in_several));
  fail(ErrorKind::kConfig, "optimizer",
       cat("expected every parameter in exactly one group, got ", got));
}

}  // namespace convscope
