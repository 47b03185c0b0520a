// SPDX-License-Identifier: Apache-2.0
// step_kernels.h: the kernel of each layer and direction in a step, for `explain`, layers.csv and
// `bench net --layers`. tests/experiments/explained_kernels_test.cpp compares it with the kernels
// that run (layers/dispatch/kernel_runs.h).
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "layers/plan/step_plan.h"

namespace convscope {

// Execution of a step: "planned" (layers/plan/step_plan.h), "recorded" (a planned step replayed by
// a GPU: experiments/trainer/recorded_steps.h) or "dynamic" (a new graph in each step).
struct LayerKernel {
  std::string kernel;     // "winograd_f4x3", "lanes_chain: c1+c2", "direct checked by reference"
  std::string execution;  // of this layer: "planned", "recorded" or "dynamic"
  std::string layout = "nchw";  // of its images: "nchw16c"; "nchw:nchw16c" of x and y
};

class CONVSCOPE_API StepKernels {
 public:
  std::string execution = "dynamic";  // of the step
  std::string why;                    // why it is not planned or not recorded; else ""

  void now_recorded();  // marks planned layers as recorded
  void add(const std::string& layer, Direction direction, const LayerKernel& kernel);
  // Returns the kernel, or null when the step has none for this layer and direction. The first
  // layer computes no gradient of the images, an inference computes no gradients, and layers
  // without weights are not listed.
  const LayerKernel* find(const std::string& layer, Direction direction) const;
  // Returns the kernel's name, or "-".
  const std::string& name_of(const std::string& layer, Direction direction) const;
  // Returns how this layer is executed: one step may have both planned and dynamic layers.
  const std::string& execution_of(const std::string& layer) const;
  const auto& all() const { return kernels_; }
  // Returns whether a kernel's name contains `word`.
  bool any(std::string_view word) const;

 private:
  std::map<std::pair<std::string, Direction>, LayerKernel> kernels_;
};

CONVSCOPE_API StepKernels planned_kernels(const StepPlan& plan, bool recorded = false);
// Returns the kernels that a step would use as a dynamic graph, without running it. `why` says why
// the step is not compiled.
CONVSCOPE_API StepKernels dynamic_kernels(Module& model, const Shape& input, Device device,
                                          PlanMode mode, const std::string& why);

// Compiles a step and returns its kernels. If `plans` is false or the step cannot be compiled,
// returns the kernels of a dynamic step.
CONVSCOPE_API StepKernels kernels_of_step(Module& model, const Shape& input, Device device,
                                          PlanMode mode, bool plans, const Loss& loss = Loss());

}  // namespace convscope
