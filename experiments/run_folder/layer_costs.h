// SPDX-License-Identifier: Apache-2.0
// layer_costs.h: what each layer of a network costs in a training step: seconds and memory, from
// steps of the run itself that are looked at while they run (framework/memory/work_clock.h).
//
//   LayerCosts costs(device);
//   if (costs.look(n)) step.watch(&costs.forward(), &costs.backward());
//   ...                                                 // the step
//   costs.add(plan);                                    // or add(model), of a dynamic step
//   costs.of("c1")->forward_s                           // mean over the steps looked at
//
// A step that is looked at does the same work and gives the same bits. On the CPU it costs a
// reading of the clock for each operation, and each 8th step is looked at. On a GPU a recorded step
// is launched alone for it, with events between its kernels, which then cannot overlap: the sum
// over the layers is more than avg_step. Steps 16, 32, 64, .. 512 are looked at there, then each
// 512th, or the first behind it that can be.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "framework/memory/work_clock.h"
#include "layers/module.h"
#include "layers/plan/step_plan.h"

namespace convscope {

struct LayerCost {
  bool timed = false;  // false: it runs as part of another layer's kernels
  double forward_s = 0, backward_s = 0;
  double kept_bytes = 0;   // that its forward leaves allocated
  std::string timed_with;  // the layer that its work is counted with, all or a part; "": none
};

class CONVSCOPE_API LayerCosts {
 public:
  explicit LayerCosts(Device device);
  // Whether to look at a step, whose number grows from call to call; counted in this process from
  // 1.
  bool look(std::int64_t step);

  WorkClock& forward() { return forward_; }
  WorkClock& backward() { return backward_; }
  // What the clocks hold of one step.
  void add(const StepPlan& plan);
  void add(Module& model);

  std::int64_t steps() const { return steps_; }
  // Means over the steps looked at, for the layers of `rows`. The parts of a layer count with it:
  // its quantisers, for instance. What is timed and belongs to none of them has a name of its own:
  // "loss", "all layers" for what a GPU does to all weights in one launch, "stage1.0" for the
  // addition of a residual block.
  std::map<std::string, LayerCost> means(const std::set<std::string>& rows) const;

 private:
  LayerCost& sums(const std::string& layer);

  Device device_;
  WorkClock forward_, backward_;
  std::int64_t steps_ = 0;
  std::int64_t next_look_;
  std::map<std::string, LayerCost> sums_;
};

}  // namespace convscope
