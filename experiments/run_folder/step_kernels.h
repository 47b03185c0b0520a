// SPDX-License-Identifier: Apache-2.0
// step_kernels.h: which kernel computes each layer in a step, in each direction: what `explain`,
// layers.csv and `bench net --layers` name. tests/experiments/explained_kernels_test.cpp compares
// it with what the kernels themselves say (layers/dispatch/kernel_runs.h).
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "layers/plan/step_plan.h"

namespace convscope {

// How a step runs: "planned" (layers/plan/step_plan.h), "recorded" (a planned one, replayed by a
// GPU: experiments/trainer/recorded_steps.h) or "dynamic" (a graph built in each step).
struct LayerKernel {
  std::string kernel;     // "winograd_f4x3", "lanes_chain: c1+c2", "direct checked by reference"
  std::string execution;  // of this layer: "planned", "recorded" or "dynamic"
  std::string layout = "nchw";  // of its images (layers/dispatch/activation_layout.h)
};

class CONVSCOPE_API StepKernels {
 public:
  std::string execution = "dynamic";  // of the step
  std::string why;                    // why it is not planned, or not recorded; "": it is

  void now_recorded();  // what is planned is recorded
  void add(const std::string& layer, Direction direction, const LayerKernel& kernel);
  // Null: nothing runs. The first layer computes no gradient of the images, an inference none at
  // all, and layers without a weight are not named.
  const LayerKernel* find(const std::string& layer, Direction direction) const;
  // The kernel's name, or "-".
  const std::string& name_of(const std::string& layer, Direction direction) const;
  // Of the layer: planned layers and dynamic ones may stand in one step.
  const std::string& execution_of(const std::string& layer) const;
  const auto& all() const { return kernels_; }
  // Whether the name of some kernel holds `word`.
  bool any(std::string_view word) const;

 private:
  std::map<std::pair<std::string, Direction>, LayerKernel> kernels_;
};

CONVSCOPE_API StepKernels planned_kernels(const StepPlan& plan, bool recorded = false);
// Of a step that runs as a dynamic graph, because `why`. Nothing is run.
CONVSCOPE_API StepKernels dynamic_kernels(Module& model, const Shape& input, Device device,
                                          PlanMode mode, const std::string& why);

// Of a step planned here, or with `plans` false, or where no plan can be made, of a dynamic one.
CONVSCOPE_API StepKernels kernels_of_step(Module& model, const Shape& input, Device device,
                                          PlanMode mode, bool plans);

}  // namespace convscope
