// SPDX-License-Identifier: Apache-2.0
// optimizer.h: parameter groups, and the interface of all optimisers.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "framework/autograd/variable.h"
#include "framework/options.h"
#include "framework/registry.h"

namespace convscope {

struct OptimParameter {
  std::string name;     // "c1.weight"
  Variable variable;    // a leaf that requires a gradient
  bool is_end = false;  // the weight of the first or the last layer
};

// Parameters that share their settings.
struct ParameterGroup {
  std::string name = "default";
  std::vector<OptimParameter> parameters;
  double lr_scale = 1.0;      // the group's rate is lr_scale times the schedule's
  double weight_decay = 0.0;  // its unit depends on the method
};

class UpdateTable;

struct OptimState {
  std::string name;  // "momentum.c1.weight"
  Tensor tensor;
};

// A tensor of the network, and its average over the updates (slow_weights.h).
struct AveragedTensor {
  Tensor weight, average;
};

class CONVSCOPE_API Optimizer {
 public:
  virtual ~Optimizer();
  virtual std::string kind() const = 0;
  // Updates all parameters with learning rate `lr` (times each group's lr_scale), from the
  // gradients accumulated since zero_grad(). A parameter without a gradient keeps its value and its
  // momentum.
  virtual void step(double lr) = 0;
  // Writes the update that step(lr) would do into `table`, for recorded steps (device_update.h).
  // With `counts`, counts the step as done. Returns false when this optimiser does not support
  // recorded steps.
  virtual bool list_step(double lr, bool counts, UpdateTable& table);
  // Queues work before the update kernel that reads gradients, such as the products of Muon. The
  // call may be recorded. An optimiser without such work returns false from has_directions().
  virtual void queue_directions() {}
  virtual bool has_directions() const { return false; }
  // Returns the state for checkpoints: all tensors on which the next step depends, except the
  // parameters. The tensors are not copies; loading a checkpoint writes into them.
  virtual std::vector<OptimState> state() = 0;
  // Returns the averages, none without optim.ema or before the first update.
  virtual std::vector<AveragedTensor> averages() { return {}; }
  const std::vector<ParameterGroup>& groups() const { return groups_; }

 protected:
  explicit Optimizer(std::vector<ParameterGroup> groups);
  std::vector<ParameterGroup> groups_;
};

// Throws unless every parameter is in exactly one group. The error names all parameters that are
// not.
CONVSCOPE_API void check_groups_cover(const std::vector<ParameterGroup>& groups,
                                      const std::vector<OptimParameter>& all);

struct OptimizerType {
  std::string doc;
  std::vector<OptionField> fields;  // momentum, nesterov, betas, ...; not lr and weight_decay
  std::function<std::unique_ptr<Optimizer>(std::vector<ParameterGroup>, const Options&)> build;
  double lr = 0.01;  // default: a small network learns with it
};
// Contains an optimiser for each update rule (framework/ops/update_rule.h).
CONVSCOPE_API Registry<OptimizerType>& optimizer_types();

// Builds the optimiser `name` with these settings, and default values for all others.
CONVSCOPE_API std::unique_ptr<Optimizer> make_optimizer(
    std::string_view name, std::vector<ParameterGroup> groups,
    const std::map<std::string, OptionValue>& settings = {});

// Clips all gradients to a joint L2 norm of at most max_norm. Returns the norm before clipping.
// The sum of squares is computed in double in a fixed order.
CONVSCOPE_API double clip_gradient_norm(const std::vector<OptimParameter>& parameters,
                                        double max_norm);

}  // namespace convscope
