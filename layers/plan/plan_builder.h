// SPDX-License-Identifier: Apache-2.0
// plan_builder.h: what operations write their kernel calls into.
//
// An operation names the tensors of a call, then the call:
//
//   const Tensor x = builder.value(inputs[0]);
//   const Tensor y = builder.value(output);
//   builder.call([run = unary_kernel.get(builder.device()), x, y] { run(UnaryOp::relu, x, y); });
//
// A tensor is alive from the first call that names it to the last one; in between its memory is
// its own, before and after it belongs to others. The builder goes through the network twice: the
// first time tensors have a shape but no memory, and calls are only counted.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "framework/memory/arena_plan.h"
#include "framework/ops/update_rule.h"
#include "framework/precision.h"
#include "layers/plan/batch_gather.h"
#include "layers/plan/piece_sums.h"
#include "layers/plan/plan_graph.h"

namespace convscope {

// One kernel call with its prepared arguments.
struct PlanCall {
  void (*run)(void* arguments) = nullptr;
  void* arguments = nullptr;
  int op = -1;  // index in PlanGraph::ops()
};

// The number of the training step, read when a call runs. In a recording the host is not there: the
// number is then that of a word in device memory plus the step's place in the recording.
struct PlanClock {
  const std::int64_t* base = nullptr;  // null: ask the module
  std::int64_t offset = 0;
};

// A tensor of the step that is no value of the graph: an index of winners, partial sums.
using Slot = int;
inline constexpr Slot kNoSlot = -1;

class CONVSCOPE_API PlanBuilder {
 public:
  const PlanGraph& graph() const { return graph_; }
  bool training() const { return graph_.training(); }
  Device device() const { return graph_.device(); }
  // What users see: [N,C,H,W], whatever the layout of the tensor that value() gives.
  const Shape& shape(ValueId value) const { return graph_.shape(value); }
  bool wants_gradient(ValueId value) const { return graph_.wants_gradient(value); }
  // It lies in memory as halves with their channels last, and so does its gradient.
  bool in_halves(ValueId value) const { return is_half(graph_.dtype(value)); }
  bool is_channels_last(ValueId value) const {
    return graph_.layout(value) == ActivationLayout::channels_last;
  }

  // Read or written by the next call.
  Tensor value(ValueId value);
  // The gradient of a value, complete: all its readers have added theirs. May be changed in place.
  Tensor gradient(ValueId value);
  // Where the next call puts what it adds to the gradient of `value`: assigned by the first one.
  struct Target {
    Tensor tensor;
    bool accumulate = false;
  };
  Target gradient_target(ValueId value);
  // The same for kernels that can only assign: emit(dx) emits the call that assigns dx.
  template <class Emit>
  void assign_gradient(ValueId value, Emit&& emit) {
    const Target target = gradient_target(value);
    if (!target.accumulate) return emit(target.tensor);
    const Slot part = slot(target.tensor.shape(), target.tensor.dtype());
    emit(use(part));
    emit_accumulate(value, part);
  }
  // Adds what `part` holds to the gradient of `value`, which is there already.
  void add_to_gradient(ValueId value, Slot part) { emit_accumulate(value, part); }
  // `value` gets the gradient of `output` as it is, without a copy where that is possible.
  void pass_gradient(ValueId output, ValueId value);

  // An f32 image as factors of products: a block of bytes (dispatch/layout/half_factors.h). Whoever
  // writes the image may write the block, behind whose scale may stand a bound of the magnitudes;
  // else the first reader emits the call that makes it. factors() names it for the next call.
  struct Factors {
    Slot block = kNoSlot;
    bool has_halves = false, has_bound = false;  // without halves: scale and bound alone
  };
  const Factors& factors_of(ValueId value) { return state(graph_.owner(value)).factors; }
  const Factors& gradient_factors_of(ValueId value) {
    return state(graph_.owner(value)).gradient_factors;
  }
  Tensor factors(ValueId value) { return use(factors_of(value).block); }
  Tensor gradient_factors(ValueId value) { return use(gradient_factors_of(value).block); }
  void make_factors(ValueId value);
  void make_gradient_factors(ValueId value);
  // The next call writes it.
  Tensor factors_target(ValueId value, bool halves, bool bound);
  Tensor gradient_factors_target(ValueId value);

  // The value has been rounded to the half type that its only reader multiplies.
  void set_rounded(ValueId value) { state(graph_.owner(value)).is_rounded = true; }
  bool is_rounded(ValueId value) { return state(graph_.owner(value)).is_rounded; }

  // Mean and spread of the channels of a value in parts, f32 [parts,4,channels as they are stored]
  // (framework/cuda/channel_moments.cuh), where the operation that gives the value leaves them. The
  // next call writes them; the next call reads them, undefined: there are none.
  Tensor moments_target(ValueId value, std::int64_t parts);
  Tensor moments(ValueId value);

  // The gradient of a parameter. A parameter that two layers share is added to the second time.
  Target parameter_gradient(const Variable& parameter);

  Slot slot(const Shape& shape, DType dtype);
  // Alive between the calls that name it and no longer, in a prologue too.
  Slot temporary(const Shape& shape, DType dtype);
  Tensor use(Slot slot);
  // Scratch memory of the next call, counted as workspace; null for 0 bytes.
  void* workspace(std::size_t bytes);
  // Where the images of the step lie, without a copy; the pointer is read when the call runs.
  const void* const* images();
  Tensor labels();
  const PlanClock* clock() const { return &clock_; }
  // Where the factor of the loss's gradient lies on the device; null: 1. Read when the call runs.
  const double* const* loss_scale() const { return &loss_scale_; }
  // What the loss operation writes: the mean loss f32 [1], and how many images it got right, i32
  // [1].
  // Both stay until the end of the step.
  Tensor loss();
  Tensor correct();

  // Emits a call. In prologue() it runs when the weights have changed, not in each step: what it
  // writes stays alive: all slots named in it, but for temporary ones, workspace, and values of the
  // graph that the step does not name, as a masked weight of which it has the kept blocks.
  template <class F>
  void call(F&& body) {
    ++call_index_;
    if (dry_) return call_ops_.push_back(op_);
    using Body = std::decay_t<F>;
    auto* object = new Body(std::forward<F>(body));
    owned_.emplace_back(object, [](void* p) { delete static_cast<Body*>(p); });
    calls().push_back({[](void* p) { (*static_cast<Body*>(p))(); }, object, op_});
  }
  // The last call has a kernel that waits for the one before it and then lets the next one start
  // (framework/cuda/launch.cuh). So when a kernel behind it begins, all in front of it have ended.
  void last_call_waits_first() { ++calls_that_wait_first_; }
  int calls_that_wait_first() const { return calls_that_wait_first_; }  // so far
  // What `emit` emits runs behind the backward of all other operations: for calls that nobody waits
  // for but the update. For operations that emit no other backward calls.
  void at_the_end(std::function<void()> emit) { deferred_.push_back({op_, std::move(emit)}); }
  // An operation whose at_the_end() call adds pieces for another one says so in its backward. The
  // first operation behind it hands its own over: `sums` without its pieces, which lie in `pieces`.
  // All targets are gradients of parameters. The call at the end gets them, and names the slot.
  void take_sums() { takes_sums_ = true; }
  bool takes_sums() const { return takes_sums_; }
  void hand_over(Slot pieces, const PieceSums& sums) {
    takes_sums_ = false;
    handed_over_ = {pieces, sums};
  }
  PieceSums handed_over();
  // Where to gather the images and labels from; null: they are there. Read when the call runs, by
  // the one operation that reads images: it says in its forward that it can.
  const BatchGather* const* gather() const { return &gather_; }
  void take_gather() { takes_gather_ = true; }
  // The update of the step, for the call at the end that makes all gradients; null: the weights
  // stay. Read when the call runs. Such a call says that it changes them.
  const JoinedUpdate* const* update() const { return &update_; }
  void joins_update(std::size_t parameters) { joins_update_ = parameters == parameters_.size(); }
  // The parameter `weight` as kernels multiply it, which a joined update leaves (JoinedRow::copy):
  // asked when the call runs, so that the kernel need not round it. Alive through the whole step.
  struct CopyOfWeight {
    WeightCopy copy;
    const bool* is_there = nullptr;
    const void* now() const { return copy.to != nullptr && *is_there ? copy.to : nullptr; }
  };
  CopyOfWeight copy_of_weight(ValueId weight, DType factors, bool as_floats);
  template <class F>
  void prologue(F&& emit) {
    const bool before = std::exchange(in_prologue_, true);
    emit();
    in_prologue_ = before;
  }

 private:
  friend class StepPlan;
  struct SlotState {
    Shape shape;
    DType dtype = DType::f32;
    std::size_t bytes = 0;
    int first = 1 << 30, last = -1;
    bool is_workspace = false;
    bool is_temporary = false;
    bool outlives_step = false;                 // read in the step behind
    bool is_value = false;                      // of the graph: whoever reads it asks value()
    bool in_prologue = false, in_step = false;  // who names it
    std::size_t offset = 0;
  };
  struct ValueState {
    Slot slot = kNoSlot, gradient = kNoSlot;
    bool has_gradient = false;
    bool is_rounded = false;
    Factors factors, gradient_factors;
    Slot moments = kNoSlot;
  };
  using Owned = std::unique_ptr<void, void (*)(void*)>;

  explicit PlanBuilder(PlanGraph& graph) : graph_(graph) {}
  void start_pass(bool dry, Ref<Storage> arena);
  void finish_dry_pass();
  void emit_deferred();
  Tensor new_factors(Factors& to, ValueId value, bool halves, bool bound);
  void emit_accumulate(ValueId value, Slot part);
  Tensor kept(Slot& slot, DType dtype);
  Tensor outliving(Slot slot);
  void note_gradient(const Variable& parameter);
  std::vector<PlanCall>& calls();
  ValueState& state(ValueId value) { return values_[static_cast<std::size_t>(value)]; }

  PlanGraph& graph_;
  bool dry_ = true;
  bool in_prologue_ = false;
  bool in_backward_ = false;
  int call_index_ = 0;  // of the next call
  int calls_that_wait_first_ = 0;
  int op_ = 0;                 // whose calls are emitted
  std::vector<int> call_ops_;  // by call_index_: whose calls they are
  int forward_calls_ = 0;
  Ref<Storage> arena_;
  std::size_t arena_bytes_ = 0;
  std::vector<SlotState> slots_;
  std::size_t next_slot_ = 0;
  std::vector<ValueState> values_;
  Slot labels_ = kNoSlot, loss_ = kNoSlot, correct_ = kNoSlot;
  const void* images_now_ = nullptr;
  PlanClock clock_;
  const double* loss_scale_ = nullptr;
  const BatchGather* gather_ = nullptr;
  bool takes_gather_ = false, takes_sums_ = false, joins_update_ = false;
  std::pair<Slot, PieceSums> handed_over_{kNoSlot, {}};
  const JoinedUpdate* update_ = nullptr;
  std::vector<std::pair<const void*, WeightCopy>> copies_;  // of the weight there
  bool copies_are_there_ = false;
  std::vector<Variable> parameters_;  // whose gradient the plan writes
  std::vector<int> parameter_ops_;    // and the operation that does so last
  std::vector<std::pair<int, std::function<void()>>> deferred_;  // operation and at_the_end()
  std::vector<Owned> owned_;
  std::vector<PlanCall> prologue_calls_, forward_, backward_;
};

}  // namespace convscope
