// SPDX-License-Identifier: Apache-2.0
// step_plan.h: a training or inference step, compiled once for inputs of one shape and then
// replayed: two flat lists of kernel calls with ready arguments, on one block of memory. While the
// step runs, nothing is allocated, no shape is checked and no graph is built.
//
// The dynamic graph (Module::forward, Variable::backward) stays the definition: a compiled step
// gives the same bits, except where text() names a kernel with another summation order.
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

#include "framework/graph/emitter.h"
#include "framework/memory/work_clock.h"
#include "framework/parallel.h"
#include "layers/losses/loss.h"
#include "layers/module.h"

namespace convscope {

struct PlanMemory {
  std::int64_t arena_bytes = 0;        // the one block that holds everything below
  std::int64_t kept_bytes = 0;         // saved by the forward pass for the backward pass
  std::int64_t workspace_bytes = 0;    // largest workspace of one call
  std::int64_t lower_bound_bytes = 0;  // no placement can use a smaller block
};

class CONVSCOPE_API StepPlan {
 public:
  // Compiles a step. If that is not possible, returns null and writes the reason to `why_not`,
  // which may be null. `arena` is the memory of another plan, used if it is large enough; the two
  // plans must not run at the same time. The result is also null for a step in which a quantiser
  // calibrates. If to_show is set, the quantiser counts as calibrated; the result is for display
  // only and must not run.
  static std::unique_ptr<StepPlan> make(Module& model, const Shape& input, PlanMode mode,
                                        std::string* why_not, Ref<Storage> arena = {},
                                        bool to_show = false, const Loss& loss = Loss());

  // Returns false when the weights have moved to other memory, or when the number of threads or the
  // instruction set has changed. The caller must then make a new plan.
  bool is_current() const;
  const Shape& input() const { return graph_.shape(Graph::input()); }
  Device device() const { return graph_.device(); }

  // Folds batch norm into the weights. Call it before an inference whenever the weights have
  // changed.
  void prepare();
  // Returns the loss; training plans only. x is on the plan's device; labels, i32 [N] in
  // [0, classes), are on that device or on the CPU.
  double forward(const Tensor& x, const Tensor& labels);
  // Queues the calls of forward() without waiting. loss() waits for the result.
  void queue_forward(const Tensor& x, const Tensor& labels);
  double loss() const;
  // Sets the address of the images, for callers that also fill labels() themselves and then call
  // queue_forward() without checks. Evaluation plans support it, too.
  void set_images(const Tensor& x);
  void queue_forward();
  const Tensor& labels() const { return labels_; }           // i32 [N]
  const Tensor& loss_tensor() const { return loss_; }        // f32 [1]
  const Tensor& correct_tensor() const { return correct_; }  // i32 [1]
  // Sets the position of this step in a recording (PlanClock).
  void set_clock(const PlanClock& clock) { emitter_.state_.clock = clock; }
  // Sets the factor of the gradient of the loss: a number on the plan's device, read by each step;
  // null: 1.
  void set_loss_scale(const double* scale) { emitter_.state_.loss_scale = scale; }
  // Returns whether the forward pass can gather images and labels. set_gather(nullptr) means that
  // images and labels are in place.
  bool takes_gather() const { return emitter_.offers_.gathers; }
  void set_gather(const BatchGather* gather) { emitter_.state_.gather = gather; }
  // Returns whether backward() can update all weights itself, so that the update needs no launch.
  bool joins_update(const JoinedUpdate& update) const;
  // Sets the update for the next backward(); null: none.
  void set_update(const JoinedUpdate* update) { emitter_.state_.update = update; }
  // Adds to `update` the rounded copies of weights that this plan's kernels can multiply, so that
  // the update writes these copies. Returns false if there are none.
  bool wants_copies(JoinedUpdate& update) const;
  // Sets whether the rounded copies are valid in the next calls: the joined update of the previous
  // step has written them, and the weights have not changed since.
  void set_copies_are_there(bool there) { emitter_.state_.copies_are_there = there; }
  // Runs an inference; the result is valid until the next call.
  Tensor infer(const Tensor& x);
  // Assigns the gradients of all parameters that need one.
  void backward();
  // Runs backward() and calls `ready` for each parameter once the last kernel of its gradient has
  // run; on a device, once that kernel is queued. The thread that runs the kernels calls `ready`,
  // which must not block for long.
  void backward(FunctionRef<void(const Variable&)> ready);
  // Returns how many of the last forward's images have their largest logit at their label.
  std::int64_t correct() const;

  const PlanMemory& memory() const { return memory_; }
  const Ref<Storage>& arena() const { return emitter_.arena_; }
  std::size_t call_count() const { return emitter_.forward_.size() + emitter_.backward_.size(); }
  // Returns the seconds of all calls of each operation in one forward (and backward) pass, to find
  // slow operations. In training the last entry is the loss. Labels are as in forward().
  struct OpTime {
    std::string layer, text;
    double forward_s = 0, backward_s = 0;
  };
  std::vector<OpTime> time_ops(const Tensor& x, const Tensor& labels);
  // Makes later forward and backward passes report to these clocks which operation runs, by its
  // index in works(). Null means no clock. The bits of a step do not depend on clocks.
  void tell(WorkClock* forward, WorkClock* backward);
  struct Work {
    std::vector<std::string> layers;  // that the operation computes; empty: not of one layer
    std::string text;
    std::int64_t kept_bytes = 0;  // saved by this operation's forward for the backward pass
  };
  const std::vector<Work>& works() const { return works_; }  // one for each operation
  // One operation of text(): the layer (or the first of several layers), the description of the
  // operation and of its result.
  struct Line {
    std::string layer, text;
    Shape shape;
    bool once = false;  // computed from parameters in prepare(), not in each step
    // Counts of the forward pass. `flops` are those of products in layers with a weight, `bytes`
    // those of all inputs and outputs, each counted once; 0 for views.
    double flops = 0, bytes = 0;
  };
  std::vector<Line> lines() const;  // the operations of each step, then those that run once
  std::string text() const;         // all lines
  // Returns the kernel of each layer with a weight, in each direction that runs: the name of an
  // algorithm or of a chain. Tables and reports show these names.
  std::vector<RanKernel> kernels() const;
  // Returns "" if a device may record the calls, else which operation cannot be recorded.
  std::string why_not_recordable() const;
  // Returns how many copies into another layout and back one step makes.
  int conversions() const;

 private:
  StepPlan(const Shape& input, PlanMode mode, Device device)
      : graph_(input, mode, device), emitter_(graph_) {}
  void run(const std::vector<PlanCall>& calls, WorkClock* clock = nullptr,
           const FunctionRef<void(const Variable&)>* ready = nullptr) const;
  void tell_ready(int op, FunctionRef<void(const Variable&)> ready) const;
  double seconds_of(const std::vector<PlanCall>& calls, std::size_t first, std::size_t last) const;
  void record(Module& model, const Loss& loss);
  void emit();
  void remember(Module& model);
  void load_labels(const Tensor& labels);

  Graph graph_;
  Emitter emitter_;
  ValueId logits_ = kNoValue, labels_value_ = kNoValue;
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
