// SPDX-License-Identifier: Apache-2.0
// layer_costs.h: the cost of each layer in a training step: seconds and memory, from sampled steps
// of the run itself (framework/memory/work_clock.h).
//
//   LayerCosts costs(device);
//   if (costs.look(n)) step.watch(&costs.forward(), &costs.backward());
//   ...                                                 // the step
//   costs.add(plan);                                    // or add(model) for a dynamic step
//   costs.means({"c1"}).at("c1").forward_s              // mean over the sampled steps
//
// A sampled step does the same work and gives the same bits as any other step. On the CPU each 8th
// step is sampled, which costs a clock reading per operation. On a GPU, steps 16, 32, 64, .. 512
// and then each 512th step are sampled. If such a step cannot be sampled, the next suitable step is
// sampled instead. A sampled step of a recorded run is launched as single kernels with events
// between them. These kernels cannot overlap, so the sum over the layers is larger than avg_step.
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
  bool timed = false;  // false: another layer's kernels compute this layer
  double forward_s = 0, backward_s = 0;
  double kept_bytes = 0;   // allocated at the end of its forward
  std::string timed_with;  // layer whose times include those of this layer; or ""
};

class CONVSCOPE_API LayerCosts {
 public:
  explicit LayerCosts(Device device);
  // Returns whether to sample a step; `step` grows from call to call, from 1 in this process.
  bool look(std::int64_t step);

  WorkClock& forward() { return forward_; }
  WorkClock& backward() { return backward_; }
  // Adds the times of one step, which the clocks have measured.
  void add(const StepPlan& plan);
  void add(Module& model);

  std::int64_t steps() const { return steps_; }
  // Returns means over the sampled steps, by layer. The times of a layer in `rows` include its
  // parts, such as its quantisers. Timed work that belongs to no layer has other names: "loss";
  // "all layers" for a GPU kernel that handles all weights in one launch; "stage1.0" for the
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
