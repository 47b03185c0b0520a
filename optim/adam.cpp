// SPDX-License-Identifier: Apache-2.0
// adam.cpp: Adam, and AdamW with decoupled weight decay.
#include "optim/adam.h"

#include <cmath>

#include "optim/update.h"

namespace convscope {

Adam::Adam(std::vector<ParameterGroup> groups, const AdamSettings& settings)
    : Optimizer(std::move(groups)), settings_(settings) {
  CONVSCOPE_CHECK(settings.beta1 >= 0 && settings.beta1 < 1, kind(),
                  "expected beta1 in [0, 1), got ", settings.beta1);
  CONVSCOPE_CHECK(settings.beta2 >= 0 && settings.beta2 < 1, kind(),
                  "expected beta2 in [0, 1), got ", settings.beta2);
  CONVSCOPE_CHECK(std::isfinite(settings.epsilon) && settings.epsilon > 0, kind(),
                  "expected epsilon > 0, got ", settings.epsilon);
  std::int64_t count = 0;
  for (const ParameterGroup& group : groups_) {
    for (const OptimParameter& parameter : group.parameters) {
      const Tensor& w = parameter.variable.value();
      means_.push_back(Tensor::zeros(w.shape(), w.dtype(), w.device()));
      squares_.push_back(Tensor::zeros(w.shape(), w.dtype(), w.device()));
      ++count;
    }
  }
  steps_ = Tensor::zeros(Shape{count}, DType::i32);
  table_ = std::make_unique<UpdateTable>(groups_);
}

Adam::~Adam() = default;

bool Adam::list_step(double lr, bool counts, UpdateTable& table, UpdateRule& rule) {
  CONVSCOPE_CHECK(std::isfinite(lr) && lr >= 0, kind(), "expected a learning rate >= 0, got ", lr);
  std::int32_t* const steps = steps_.data<std::int32_t>();
  table.clear();
  rule = {
      .adam = true, .sgd = {}, .adam_rule = {settings_.beta1, settings_.beta2, settings_.epsilon}};
  // The two powers beta^t are computed only when t changes, because usually all parameters have the
  // same t.
  std::int32_t t = 0;
  double mean_scale = 1;
  double v_scale = 1;
  std::size_t index = 0;
  for (const ParameterGroup& group : groups_) {
    for (const OptimParameter& parameter : group.parameters) {
      const std::size_t p = index++;
      UpdateRow* row = table.add(parameter.variable);
      if (row == nullptr) continue;
      const std::int32_t now = steps[p] + 1;
      if (counts) steps[p] = now;
      if (now != t) {
        t = now;
        mean_scale = 1 / (1 - std::pow(settings_.beta1, t));
        v_scale = 1 / std::sqrt(1 - std::pow(settings_.beta2, t));
      }
      const double rate = lr * group.lr_scale;
      row->rate = rate * mean_scale;
      row->v_scale = v_scale;
      row->decay = settings_.decoupled ? 0.0 : group.weight_decay;
      row->shrink = settings_.decoupled ? 1.0 - rate * group.weight_decay : 1.0;
      row->m = means_[p].raw_data();
      row->v = squares_[p].raw_data();
    }
  }
  return true;
}

void Adam::step(double lr) {
  UpdateRule rule;
  list_step(lr, /*counts=*/true, *table_, rule);
  if (table_->rows().empty()) return;
  adam_update_kernel.get(table_->device())(*table_, rule.adam_rule);
}

std::vector<OptimState> Adam::state() {
  std::vector<OptimState> out;
  std::size_t index = 0;
  for (const ParameterGroup& group : groups_) {
    for (const OptimParameter& parameter : group.parameters) {
      out.push_back({"mean." + parameter.name, means_[index]});
      out.push_back({"square." + parameter.name, squares_[index++]});
    }
  }
  out.push_back({"steps", steps_});
  return out;
}

std::vector<OptionField> adam_fields() {
  return {{.name = "beta1",
           .type = OptionType::number,
           .default_value = 0.9,
           .doc = "decay rate of the mean of the gradient, from 0 to below 1",
           .min = 0.0,
           .max = std::nextafter(1.0, 0.0)},
          {.name = "beta2",
           .type = OptionType::number,
           .default_value = 0.999,
           .doc = "decay rate of the mean of the squared gradient, from 0 to below 1",
           .min = 0.0,
           .max = std::nextafter(1.0, 0.0)},
          {.name = "epsilon",
           .type = OptionType::number,
           .default_value = 1e-8,
           .doc = "constant added to the root of the mean square, so that it is never zero",
           .min = 1e-30,
           .max = 1.0}};
}

std::unique_ptr<Optimizer> build_adam(std::vector<ParameterGroup> groups, const Options& options,
                                      bool decoupled) {
  return std::make_unique<Adam>(std::move(groups),
                                AdamSettings{.beta1 = options.number("beta1"),
                                             .beta2 = options.number("beta2"),
                                             .epsilon = options.number("epsilon"),
                                             .decoupled = decoupled});
}

CONVSCOPE_REGISTER_OPTIMIZER(
    "adam",
    {"Adam: each weight has its own rate, from the mean and the mean square of its gradient",
     adam_fields(),
     [](std::vector<ParameterGroup> groups, const Options& options) {
       return build_adam(std::move(groups), options, false);
     },
     0.001})

}  // namespace convscope
