// SPDX-License-Identifier: Apache-2.0
// sgd.cpp: stochastic gradient descent with momentum, dampening, Nesterov and weight decay.
#include "optim/sgd.h"

#include <cmath>

#include "optim/update.h"

namespace convscope {

Sgd::Sgd(std::vector<ParameterGroup> groups, const SgdSettings& settings)
    : Optimizer(std::move(groups)), settings_(settings) {
  CONVSCOPE_CHECK(settings.momentum >= 0 && settings.momentum <= 1, "sgd",
                  "expected momentum in [0, 1], got ", settings.momentum);
  CONVSCOPE_CHECK(settings.dampening >= 0 && settings.dampening <= 1, "sgd",
                  "expected dampening in [0, 1], got ", settings.dampening);
  CONVSCOPE_CHECK(!settings.nesterov || (settings.momentum > 0 && settings.dampening == 0), "sgd",
                  "expected momentum > 0 and dampening 0 because nesterov is on, got momentum ",
                  settings.momentum, " and dampening ", settings.dampening);
  std::int64_t count = 0;
  for (const ParameterGroup& group : groups_) {
    for (const OptimParameter& parameter : group.parameters) {
      const Tensor& w = parameter.variable.value();
      if (settings.momentum > 0) {
        momenta_.push_back(Tensor::zeros(w.shape(), w.dtype(), w.device()));
      }
      ++count;
    }
  }
  steps_ = Tensor::zeros(Shape{count}, DType::i32);
  table_ = std::make_unique<UpdateTable>(groups_);
}

Sgd::~Sgd() = default;

bool Sgd::list_step(double lr, bool counts, UpdateTable& table, UpdateRule& rule) {
  CONVSCOPE_CHECK(std::isfinite(lr) && lr >= 0, "sgd", "expected a learning rate >= 0, got ", lr);
  std::int32_t* const steps = steps_.data<std::int32_t>();
  table.clear();
  rule = {.adam = false, .sgd = {settings_.momentum, settings_.nesterov}, .adam_rule = {}};
  std::size_t index = 0;
  for (const ParameterGroup& group : groups_) {
    for (const OptimParameter& parameter : group.parameters) {
      const std::size_t p = index++;
      UpdateRow* row = table.add(parameter.variable);
      if (row == nullptr) continue;
      row->rate = lr * group.lr_scale;
      row->decay = group.weight_decay;
      if (!momenta_.empty()) {
        const bool first = steps[p] == 0;
        row->m = momenta_[p].raw_data();
        row->keep = first ? 0.0 : settings_.momentum;
        row->gain = first ? 1.0 : 1.0 - settings_.dampening;
      }
      if (counts) ++steps[p];
    }
  }
  return true;
}

void Sgd::step(double lr) {
  UpdateRule rule;
  list_step(lr, /*counts=*/true, *table_, rule);
  if (table_->rows().empty()) return;
  sgd_update_kernel.get(table_->device())(*table_, rule.sgd);
}

std::vector<OptimState> Sgd::state() {
  std::vector<OptimState> out;
  std::size_t index = 0;
  for (const ParameterGroup& group : groups_) {
    for (const OptimParameter& parameter : group.parameters) {
      if (!momenta_.empty()) out.push_back({"momentum." + parameter.name, momenta_[index++]});
    }
  }
  out.push_back({"steps", steps_});
  return out;
}

CONVSCOPE_REGISTER_OPTIMIZER(
    "sgd",
    {"stochastic gradient descent with momentum",
     {{.name = "momentum",
       .type = OptionType::number,
       .default_value = 0.9,
       .doc = "fraction of the last update direction that is kept, 0 to 1",
       .min = 0.0,
       .max = 1.0},
      {.name = "dampening",
       .type = OptionType::number,
       .default_value = 0.0,
       .doc = "the gradient enters the momentum with weight 1 - dampening, 0 to 1",
       .min = 0.0,
       .max = 1.0},
      {.name = "nesterov",
       .type = OptionType::boolean,
       .default_value = false,
       .doc = "look ahead by one momentum step; needs momentum > 0 and dampening 0"}},
     [](std::vector<ParameterGroup> groups, const Options& options) -> std::unique_ptr<Optimizer> {
       return std::make_unique<Sgd>(std::move(groups),
                                    SgdSettings{.momentum = options.number("momentum"),
                                                .dampening = options.number("dampening"),
                                                .nesterov = options.flag("nesterov")});
     },
     0.05})

}  // namespace convscope
