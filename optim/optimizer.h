// SPDX-License-Identifier: Apache-2.0
// optimizer.h: parameter groups, and the interface of SGD, Adam and AdamW.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "framework/autograd/variable.h"
#include "framework/options.h"
#include "framework/registry.h"

namespace convscope {

struct OptimParameter {
  std::string name;   // "c1.weight"
  Variable variable;  // a leaf that requires a gradient
};

// Parameters that share their settings.
struct ParameterGroup {
  std::string name = "default";
  std::vector<OptimParameter> parameters;
  double lr_scale = 1.0;      // the group's rate is lr_scale times the schedule's
  double weight_decay = 0.0;  // 1 / step unit of the method
};

class UpdateTable;
struct UpdateRule;

struct OptimState {
  std::string name;  // "momentum.c1.weight"
  Tensor tensor;
};

class CONVSCOPE_API Optimizer {
 public:
  virtual ~Optimizer();
  virtual std::string kind() const = 0;
  // One update of all parameters with learning rate `lr` (times each group's lr_scale), from the
  // gradients that the backward passes since zero_grad() have accumulated. A parameter without a
  // gradient is left alone, its momentum too.
  virtual void step(double lr) = 0;
  // Writes into `table` what step(lr) would do, row by row, and `rule`, what is common to the rows;
  // with `counts` the step counts as done. For steps that are recorded (device_update.h). False:
  // this optimiser cannot.
  virtual bool list_step(double lr, bool counts, UpdateTable& table, UpdateRule& rule);
  // Everything beside the parameters that the next step depends on, for checkpoints. The tensors
  // are the live ones: loading copies into them.
  virtual std::vector<OptimState> state() = 0;
  const std::vector<ParameterGroup>& groups() const { return groups_; }

 protected:
  explicit Optimizer(std::vector<ParameterGroup> groups);
  std::vector<ParameterGroup> groups_;
};

// Every parameter must be in exactly one group: an error names those in none or in two.
CONVSCOPE_API void check_groups_cover(const std::vector<ParameterGroup>& groups,
                                      const std::vector<OptimParameter>& all);

struct OptimizerType {
  std::string doc;
  std::vector<OptionField> fields;  // momentum, nesterov, betas, ...; not lr and weight_decay
  std::function<std::unique_ptr<Optimizer>(std::vector<ParameterGroup>, const Options&)> build;
  double lr = 0.01;  // where a config gives none: a small network learns with it
};
CONVSCOPE_API Registry<OptimizerType>& optimizer_types();

// Scales all gradients so that their joint L2 norm is at most max_norm; returns the norm before.
// The sum is taken in double in a fixed order.
CONVSCOPE_API double clip_gradient_norm(const std::vector<OptimParameter>& parameters,
                                        double max_norm);

}  // namespace convscope

#define CONVSCOPE_REGISTER_OPTIMIZER(name, ...)                        \
  namespace {                                                          \
  const bool registered_optimizer =                                    \
      ::convscope::optimizer_types().add(name, __VA_ARGS__, __FILE__); \
  }
