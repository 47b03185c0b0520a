// SPDX-License-Identifier: Apache-2.0
// step_plan.h: a training step, or an inference, of a network for inputs of one shape, planned once
// and then replayed: two flat lists of kernel calls whose arguments stand ready, on one block of
// memory. Nothing is allocated, no shape is looked at and no graph is built while it runs.
//
// The dynamic graph (Module::forward, Variable::backward) stays the definition: a plan gives the
// same bits, except where text() names a kernel that sums in another order.
//
// Usage   std::string why;
//         auto plan = StepPlan::make(model, x.shape(), PlanMode::training, &why);  // null: see why
//         double loss = plan->forward(x, labels);   // loss in nats, mean over the batch
//         plan->backward();                         // assigns the gradients of the parameters
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/memory/work_clock.h"
#include "framework/parallel.h"
#include "layers/module.h"
#include "layers/plan/plan_builder.h"

namespace convscope {

struct PlanMemory {
  std::int64_t arena_bytes = 0;        // the one block that holds everything below
  std::int64_t kept_bytes = 0;         // what the forward keeps for the backward
  std::int64_t workspace_bytes = 0;    // largest workspace of one call
  std::int64_t lower_bound_bytes = 0;  // no plan can do with a smaller block
};

class CONVSCOPE_API StepPlan {
 public:
  // Null when the network cannot be planned; `why_not` (may be null) says why. `arena`: memory of
  // another plan that may be used when it is large enough; the two must not run at the same time.
  // A step in which a quantiser calibrates is not planned either, unless to_show: then the plan is
  // that of the steps behind, to be read and not to be run.
  static std::unique_ptr<StepPlan> make(Module& model, const Shape& input, PlanMode mode,
                                        std::string* why_not, Ref<Storage> arena = {},
                                        bool to_show = false);

  // False when the weights have moved to other memory, or threads or instruction set have changed
  // since: make a new one.
  bool is_current() const;
  const Shape& input() const { return graph_.shape(PlanGraph::input()); }
  Device device() const { return graph_.device(); }

  // After the weights have changed and before forward(): inference folds batch norm into them.
  void prepare();
  // Returns the loss; training plans only. x lives on the plan's device, labels, i32 [N] in
  // [0, classes), there or on the CPU.
  double forward(const Tensor& x, const Tensor& labels);
  // The same, queued: nothing is read. loss() waits for it.
  void queue_forward(const Tensor& x, const Tensor& labels);
  double loss() const;
  // For those who put the images into one place and the labels into labels() themselves: forward
  // calls alone, nothing is checked. Evaluation plans too.
  void set_images(const Tensor& x);
  void queue_forward();
  const Tensor& labels() const { return labels_; }           // i32 [N]
  const Tensor& loss_tensor() const { return loss_; }        // f32 [1]
  const Tensor& correct_tensor() const { return correct_; }  // i32 [1]
  // Which step a recording is of (PlanClock).
  void set_clock(const PlanClock& clock) { builder_.clock_ = clock; }
  // What the gradient of the loss is multiplied by: a number on the plan's device, read by each
  // step; null: 1.
  void set_loss_scale(const double* scale) { builder_.loss_scale_ = scale; }
  // Whether the forward can gather its images and labels itself; where from; null: they are there.
  bool takes_gather() const { return builder_.takes_gather_; }
  void set_gather(const BatchGather* gather) { builder_.gather_ = gather; }
  // Whether backward() can change the weights itself, all of them: no launch for the update then.
  bool joins_update(const JoinedUpdate& update) const;
  // The update that the next backward() does so; null: none.
  void set_update(const JoinedUpdate* update) { builder_.update_ = update; }
  // Names the copies of weights that this plan's kernels can multiply, for such an update to leave;
  // false: there are none.
  bool wants_copies(JoinedUpdate& update) const;
  // Whether the next calls find them: the update of the step before was joined and left them, and
  // nobody has changed the weights since.
  void set_copies_are_there(bool there) { builder_.copies_are_there_ = there; }
  // Inference; the result lives until the next call.
  Tensor infer(const Tensor& x);
  // Assigns the gradients of all parameters that want one.
  void backward();
  // The same; tells `ready` of each parameter once its last kernel has run (on a device: is
  // queued). In the thread that runs the kernels; it must not wait for long.
  void backward(FunctionRef<void(const Variable&)> ready);
  // How many of the last forward's images have their largest logit at their label.
  std::int64_t correct() const;

  const PlanMemory& memory() const { return memory_; }
  const Ref<Storage>& arena() const { return builder_.arena_; }
  std::size_t call_count() const { return builder_.forward_.size() + builder_.backward_.size(); }
  // Seconds that each operation took, its calls together, in one forward (and backward): what to
  // look at when a step is slow. In training the last entry is the loss; labels as in forward().
  struct OpTime {
    std::string layer, text;
    double forward_s = 0, backward_s = 0;
  };
  std::vector<OpTime> time_ops(const Tensor& x, const Tensor& labels);
  // Forwards and backwards to come tell these clocks which operation works, by its entry of
  // works(); null: nobody. A step that is looked at gives the same bits.
  void tell(WorkClock* forward, WorkClock* backward);
  struct Work {
    std::vector<std::string> layers;  // that the operation computes; empty: no layer's own
    std::string text;
    std::int64_t kept_bytes = 0;  // of what the forward keeps for the backward, its part
  };
  const std::vector<Work>& works() const { return works_; }  // one for each operation
  // What runs, operation by operation: the layer (the first of several), what it does, its result.
  struct Line {
    std::string layer, text;
    Shape shape;
  };
  std::vector<Line> lines() const;
  std::string text() const;  // the lines, one below the other
  // What runs for each layer with a weight, in each direction that runs: the card's name, or the
  // chain's. This is what tables and reports name.
  std::vector<RanKernel> kernels() const;
  // "": a device may record the calls; or which operation it is that cannot be recorded.
  std::string why_not_recordable() const;
  // Of values into another layout and back, in one step.
  int conversions() const;

 private:
  StepPlan(const Shape& input, PlanMode mode, Device device)
      : graph_(input, mode, device), builder_(graph_) {}
  void run(const std::vector<PlanCall>& calls, WorkClock* clock = nullptr,
           const FunctionRef<void(const Variable&)>* ready = nullptr) const;
  void tell_ready(int op, FunctionRef<void(const Variable&)> ready) const;
  double seconds_of(const std::vector<PlanCall>& calls, std::size_t first, std::size_t last) const;
  void emit();
  void remember(Module& model);
  void load_labels(const Tensor& labels);

  PlanGraph graph_;
  PlanBuilder builder_;
  ValueId logits_ = kNoValue;
  Tensor result_, labels_, loss_, correct_;
  PlanMemory memory_;
  std::vector<Work> works_;
  WorkClock *forward_clock_ = nullptr, *backward_clock_ = nullptr;
  struct Held {
    Variable parameter;
    const void* data;
    const void* gradient;
  };
  std::vector<Held> held_;
  int threads_ = 0;
  int isa_ = 0;
};

}  // namespace convscope
